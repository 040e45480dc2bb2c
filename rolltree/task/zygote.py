"""The process behind a judge: it loads what judging needs, and forks one process per text.

Only the forked process sees what a text does. It dies with its text, is bound in time, memory and what it may say, can
start, write and reach nothing as far as the system has Landlock and seccomp, and hands back one answer, which counts
only behind a word that is new for every text. The zygote itself never runs a text, so no text changes how the next is
judged, and it ends with the program that started it.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

from rolltree.task.sandbox import landlock, layers, seccomp
from rolltree.task.sandbox.inside import LIBRARIES
from rolltree.task.sandbox.kernel import LINUX

AT_ONCE = 8 + 2 * (os.cpu_count() or 1)
"""Texts judged at a time; more wait, and the wait is not on their clock."""
TICK = 1.0
"""Seconds between looks at whether the program is still there."""
SAY = 3
"""The descriptor on which a forked process says its answer."""
LOOK = 0.02
"""Seconds between looks at a process that has said all it will and has not ended."""

Plan = Callable[[bytes], Callable[[], Any]]
"""Reads a question, in the zygote, and returns what answers it, in a process of its own."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What judging one text may take."""

    seconds: int = 5
    """Processor time: a text that takes more is at fault. A busy machine makes nobody's answer wrong."""
    wall: float = 20.0
    """Wall clock, for what uses no processor time. It runs out for a text that sleeps and on a machine that is busy,
    and does not say which: that is a crash, never a text's fault."""
    memory: int = 4 << 30
    """Bytes of address space."""
    said: int = 1 << 20
    """Bytes of its answer."""


@dataclass(slots=True)
class Text:
    """One text that is being judged."""

    number: bytes
    pid: int
    pipe: int
    word: bytes
    late: float
    said: bytearray = field(default_factory=bytearray)
    silent: bool = False
    """Whether its end of the pipe is closed."""


def serve(load: Callable[[], None], plan: Plan) -> None:
    """A judge's process: numbered questions in, numbered answers out, until its input ends."""
    bounds = Bounds(**json.loads(sys.argv[2]))
    parent = int(sys.argv[3])
    out = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for channel in (1, 2):
        os.dup2(nothing, channel)
    load()
    gc.collect()
    gc.freeze()  # what is loaded is shared with every fork and stays so
    Zygote(plan, bounds, out, nothing, parent).run()


class Zygote:
    """Forks, listens, ends what is late, and answers."""

    def __init__(self, plan: Plan, bounds: Bounds, out: int, nothing: int, parent: int) -> None:
        self._plan = plan
        self._bounds = bounds
        self._out = out
        self._nothing = nothing
        self._parent = parent
        self._open = True
        self._heard = bytearray()
        self._queue: deque[tuple[bytes, bytes]] = deque()
        self._texts: dict[int, Text] = {}
        self._ears = selectors.DefaultSelector()
        self._ears.register(0, selectors.EVENT_READ)

    def run(self) -> None:
        """Until the program closes our input, or is gone."""
        while self._open and os.getppid() == self._parent:
            now = time.monotonic()
            wait = min([TICK, *(t.late - now for t in self._texts.values())])
            if any(t.silent for t in self._texts.values()):
                wait = min(wait, LOOK)
            for key, _ in self._ears.select(max(wait, 0.0)):
                if key.fd == 0:
                    self._take()
                else:
                    self._hear(self._texts[key.fd])
            self._look()
            while self._queue and len(self._texts) < AT_ONCE:
                self._begin(*self._queue.popleft())
        for text in list(self._texts.values()):
            self._end(text)

    def _take(self) -> None:
        got = os.read(0, 1 << 20)
        self._open = bool(got)
        self._heard += got
        *lines, rest = self._heard.split(b"\n")
        self._heard = bytearray(rest)
        for line in lines:
            number, _, question = bytes(line).partition(b" ")
            self._queue.append((number, question))

    def _begin(self, number: bytes, question: bytes) -> None:
        try:
            work = self._plan(question)
        except Exception as error:
            self._answer(number, {"crashed": f"{type(error).__name__}: {error}"})
            return
        word = os.urandom(16).hex().encode()
        ours = os.getpid()
        read, write = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(read)
            os.close(write)
            self._answer(number, {"crashed": f"no process for a text could be started: {error}"})
            return
        if pid == 0:
            _judge(work, word, write, self._nothing, self._bounds, ours)
        os.close(write)
        os.set_blocking(read, False)
        text = Text(number, pid, read, word, time.monotonic() + self._bounds.wall)
        self._texts[read] = text
        self._ears.register(read, selectors.EVENT_READ)

    def _hear(self, text: Text) -> None:
        with suppress(BlockingIOError):
            got = os.read(text.pipe, 1 << 16)
            text.said += got
            if not got:
                text.silent = True
                self._ears.unregister(text.pipe)
            if len(text.said) > self._bounds.said:
                self._finish(text, {"fault": f"judging it says more than {self._bounds.said >> 10} KiB"})
            elif text.said.endswith(b"\n") and (told := _told(text)) is not None:
                self._finish(text, told)

    def _look(self) -> None:
        """Answer for those that ended without an answer, and end those whose time is over."""
        now = time.monotonic()
        for text in list(self._texts.values()):
            if text.silent:
                pid, status, used = os.wait4(text.pid, os.WNOHANG)
                if pid:
                    computed = used.ru_utime + used.ru_stime
                    self._finish(text, _ended(os.waitstatus_to_exitcode(status), computed, self._bounds), waited=True)
                    continue
            if now >= text.late:
                self._answer(text.number, _late(self._end(text), self._bounds))

    def _finish(self, text: Text, told: Mapping[str, Any], *, waited: bool = False) -> None:
        self._end(text, waited=waited)
        self._answer(text.number, told)

    def _end(self, text: Text, *, waited: bool = False) -> float:
        """Its process and whatever stayed in its session are gone afterwards. How long it had computed."""
        del self._texts[text.pipe]
        if not text.silent:
            self._ears.unregister(text.pipe)
        os.close(text.pipe)
        for end in (os.killpg, os.kill):
            with suppress(ProcessLookupError, PermissionError):
                if end is os.killpg or not waited:
                    end(text.pid, signal.SIGKILL)
        if waited:
            return 0.0
        used = os.wait4(text.pid, 0)[2]
        return used.ru_utime + used.ru_stime

    def _answer(self, number: bytes, told: Mapping[str, Any]) -> None:
        try:
            line = json.dumps(told)
        except RecursionError:
            line = json.dumps({"fault": "judging it gives an answer that is nested too deeply"})
        try:
            _write(self._out, number + b" " + line.encode("ascii") + b"\n")
        except BrokenPipeError:
            self._open = False


def _told(text: Text) -> dict[str, Any] | None:
    """The answer, where what was said is the word and one line of JSON and nothing else."""
    word, _, line = bytes(text.said).partition(b" ")
    if word != text.word or line.count(b"\n") != 1:
        return None
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def _ended(code: int, computed: float, bounds: Bounds) -> dict[str, Any]:
    """What is said of a text whose process ended without an answer. A process that somebody else killed is a crash."""
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and computed >= bounds.seconds):
        return {"fault": _too_much(bounds)}
    if code in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP):
        return {"crashed": f"the process of a text was ended from outside by {signal.Signals(-code).name}"}
    if code < 0:
        return {"fault": f"judging it ends in {signal.Signals(-code).name}"}
    return {"fault": "judging it ends its process, or says what nobody asked"}


def _late(computed: float, bounds: Bounds) -> dict[str, Any]:
    """What is said of a text that was not over when the wall clock ran out: its processor time alone is its fault."""
    if computed >= bounds.seconds:
        return {"fault": _too_much(bounds)}
    return {
        "crashed": f"judging it was not over after {bounds.wall:g} s, of which it computed {computed:.1f} s: it sleeps "
        "or the machine is too busy to judge"
    }


def _too_much(bounds: Bounds) -> str:
    return f"judging it takes more than {bounds.seconds} s of computing or {bounds.memory >> 30} GiB"


def _judge(
    work: Callable[[], Any], word: bytes, write: int, nothing: int, bounds: Bounds, parent: int
) -> NoReturn:  # fmt: skip
    """In the forked process: give up everything, judge, say it, end."""
    try:
        os.setsid()
        os.dup2(nothing, 0)
        if write != SAY:
            os.dup2(write, SAY)
        os.closerange(SAY + 1, 1 << 12)
        layers.bind_to_parent(parent)
        confine(bounds)
        said = {"told": work()}
        line = json.dumps(said)
    except MemoryError:
        line = json.dumps({"fault": f"judging it takes more than {bounds.memory >> 30} GiB"})
    except Exception as error:
        line = json.dumps({"crashed": f"{type(error).__name__}: {error}"[:1000]})
    except BaseException as error:
        line = json.dumps({"fault": f"judging it ends in {type(error).__name__}"})
    with suppress(OSError):
        _write(SAY, word + b" " + line.encode("ascii") + b"\n")
    os._exit(0)


def _write(to: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(to, left) :]


def confine(bounds: Bounds) -> None:
    """Limit this process for good, and take from it what judging does not need; a layer that lacks is left out."""
    with suppress(OSError, ValueError):
        layers.limits(cpu_seconds=bounds.seconds, memory=bounds.memory, disk=0)
    if LINUX:
        layers.drop_capabilities()
        installed = [sys.prefix, os.path.join(sys.base_prefix, "lib"), os.path.dirname(os.__file__)]
        with suppress(OSError):
            landlock.confine([*LIBRARIES, *installed], [os.devnull])
        with suppress(OSError):
            seccomp.install()


def told_bounds(bounds: Bounds) -> str:
    """Bounds as `serve` reads them."""
    return json.dumps(asdict(bounds))
