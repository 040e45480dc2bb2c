"""Start the inner process, take what it prints, and end it: from the outside nothing it does can last or grow."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from rolltree.task.sandbox.box import Box, Ended, Ran, SandboxError
from rolltree.task.sandbox.inside import ENVIRONMENT

ROOT = str(Path(__file__).resolve().parents[3])
LAUNCH = (
    "import sys; sys.path.insert(0, sys.argv[1]); from rolltree.task.sandbox.inside import main; main(int(sys.argv[2]))"
)
START = 60.0
"""Seconds until the code must have begun; a machine that needs longer is in trouble, not the code."""
QUEUE = 60.0
"""Seconds that a program may wait for a processor beside its own time."""
LEAST = 0.01
"""Seconds between two looks at how long it has waited."""
DRAIN = 1.0
"""Seconds in which the output of a program that was ended must close."""
AT_ONCE = 2 * (os.cpu_count() or 1)
"""Inner processes of one event loop at a time; further calls wait their turn, and the wait is not on their clock."""
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def run_python(code: str, box: Box | None = None) -> Ran:
    """Run a program in a fresh process and a fresh empty folder, and return what it printed and how it ended.

    Every fault of the code is in the result. SandboxError is ours: the process could not be started, or a guarantee
    that the box demands does not hold on this machine (then the code was not run).
    """
    turn = _turns.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE))
    async with turn:
        folder = tempfile.mkdtemp(prefix="rolltree-")
        try:
            return await _run(code, box or Box(), folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@cache
def survey(box: Box | None = None) -> Mapping[str, str]:
    """Which guarantees hold on this machine and by what, found by an empty run; SandboxError where one is missing.

    Ask before a long run depends on it. It is asked once per box, on a thread of its own, so that it may be called from
    where an event loop runs.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, run_python("", box)).result().held


async def _run(code: str, box: Box, folder: str) -> Ran:
    scratch = os.path.join(folder, "scratch")
    os.mkdir(scratch, 0o700)
    began = time.monotonic()
    read, write = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-s", "-P", "-S", "-c", LAUNCH, ROOT, str(write), stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=ENVIRONMENT, cwd=scratch,
            pass_fds=(write,), start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        os.close(read)
        raise SandboxError(f"the sandbox's process could not be started: {error}") from error
    finally:
        os.close(write)
    try:
        job = json.dumps(box.job(code, scratch, _packages() if box.packages else ())).encode()
        report, printed, stopped = await _watched(process, job, read, box)
    finally:
        os.close(read)
    if report is None:
        last = printed.decode(errors="replace").strip().rpartition("\n")[2]
        raise SandboxError(f"the sandbox broke before the code ran: {last or 'it said nothing'}")
    if report["missing"]:
        raise SandboxError(_refusal(report))
    ended, note = _how(process.returncode or 0, stopped, box)
    held = {"time": "killed from outside", "output": "cut from outside", **report["held"]}
    text = printed[: box.output].decode(errors="replace")
    return Ran(text, ended, held, time.monotonic() - began, note)


async def _watched(
    process: asyncio.subprocess.Process, job: bytes, read: int, box: Box
) -> tuple[dict[str, Any] | None, bytes, Ended | None]:
    """Its report, what it printed, and which outer limit stopped it; the whole process group is gone afterwards."""
    assert process.stdin is not None
    assert process.stdout is not None
    report, printed, stopped = None, bytearray(), None
    try:
        with suppress(ConnectionError):
            process.stdin.write(job)
            await process.stdin.drain()
        process.stdin.close()
        async with asyncio.timeout(START):
            report = await _report(read)
        running = asyncio.ensure_future(_printing(process, printed, box.output))
        try:
            stopped = "time" if await _overdue(process.pid, running, box.seconds) else running.result()
        finally:
            running.cancel()
            await asyncio.wait({running})
    except TimeoutError:
        stopped = "time"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # Drained, so that the pipe closes: what was in it when its writer died is bounded. Where the box does without
        # "processes", one that left the group may hold it open, and is not waited for.
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN):
                while chunk := await process.stdout.read(1 << 16):
                    printed += b"" if report else chunk
        process._transport.close()  # pyright: ignore
        await process.wait()
    return report, bytes(printed), stopped


async def _printing(process: asyncio.subprocess.Process, printed: bytearray, most: int) -> Ended | None:
    """Take what it prints until it ends or has printed too much."""
    assert process.stdout is not None
    while len(printed) <= most and (chunk := await process.stdout.read(1 << 16)):
        printed += chunk
    if len(printed) > most:
        return "output"
    await process.wait()  # it may have closed its output and go on
    return None


async def _overdue(pid: int, running: asyncio.Future[Any], seconds: float) -> bool:
    """Wait for its end; whether its own time ran out before. Time in which it waits for a processor is not its own."""
    began, queued, left = time.monotonic(), _in_queue(pid), seconds
    while not (await asyncio.wait({running}, timeout=max(left, LEAST)))[0]:
        passed = time.monotonic() - began
        left = seconds - passed + _in_queue(pid) - queued
        if left <= 0:
            return True
        if passed > seconds + QUEUE:
            raise SandboxError(
                f"a program in the sandbox waited more than {QUEUE:g} s for a processor: the machine is too busy; give "
                "the run fewer neighbours"
            )
    return False


def _in_queue(pid: int) -> float:
    """Seconds in which a process could run and had no processor; 0 where the system does not count them."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


async def _report(read: int) -> dict[str, Any] | None:
    """What the inner process says before the code begins; None where it died first. One write, so one read."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(read, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(read)
    text = os.read(read, 1 << 16)
    return json.loads(text) if text else None


def _how(code: int, stopped: Ended | None, box: Box) -> tuple[Ended, str]:
    """How it ended, and in words where it did not end by itself."""
    if stopped == "time":
        return "time", f"stopped after {box.seconds:g} s"
    if stopped == "output":
        return "output", f"stopped after {box.output} bytes of output"
    if code == -signal.SIGXCPU:
        return "cpu", f"stopped after {box.cpu_seconds} s of computing"
    if code < 0:
        return "killed", f"ended by {signal.Signals(-code).name}"
    return ("raised" if code else "ok"), ""


def _refusal(report: dict[str, Any]) -> str:
    missing, why = report["missing"], report["lacking"]
    named = ", ".join(repr(name) for name in missing)
    because = "; ".join(f"{layer}: {reason}" for layer, reason in why.items()) or "every layer is on, yet a test fails"
    return (
        f"the Python sandbox cannot promise {named} on this machine ({because}), so the code was not run; use "
        f"Linux 6.2 or later with Landlock and seccomp, or accept it with without={{{named}}}"
    )


@cache
def _packages() -> tuple[str, ...]:
    """Folders of installed packages."""
    return tuple(p for p in sys.path if p.endswith(("site-packages", "dist-packages")))
