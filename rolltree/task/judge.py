"""Texts judged in processes of their own, by code that a text can keep busy for ever or make do what it says.

A zygote per kind of judge forks a process for each text (`rolltree.task.zygote`). A text at fault (one that takes too
much processor time or memory, or ends its process) was not right. A judge that died of anything else, and a wall clock
that ran out, is a crash, never a zero.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rolltree.task.foreign.threads import beside
from rolltree.task.sandbox.box import GUARANTEES, Box
from rolltree.task.sandbox.inside import ENVIRONMENT
from rolltree.task.sandbox.run import survey
from rolltree.task.zygote import Bounds, told_bounds
from rolltree.tree.store.values import read_json

ROOT = str(Path(__file__).resolve().parents[2])
LAUNCH = "import sys; sys.path.insert(0, sys.argv[1]); from {module} import serve; serve()"
NEEDED = ("processes", "network", "signals", "reads", "writes")
"""Guarantees without which a text that is judged can do harm."""


class JudgeProcessError(RuntimeError):
    """A judge died or could not be started: the text is not to blame."""


class OpenJudgeWarning(RuntimeWarning):
    """This machine cannot keep a text that is judged from doing harm."""


@dataclass(frozen=True, slots=True)
class ProcessVerdict:
    """What came of judging a text."""

    told: Any = None
    fault: str = ""
    """Why there is nothing told: what the text did, and then it was not right."""


class JudgeProcess:
    """A zygote that runs `serve` of a module; questions are asked side by side and answered by number."""

    def __init__(self, module: str, bounds: Bounds) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._asked = 0
        self._waiting: dict[int, Future[ProcessVerdict]] = {}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", LAUNCH.format(module=module), ROOT, told_bounds(bounds), str(os.getpid())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT,
            start_new_session=True,
        )  # fmt: skip
        threading.Thread(target=self._listen, name="rolltree-judge", daemon=True).start()

    def put(self, question: bytes) -> Future[ProcessVerdict]:
        """Ask a question of one line; where the process is gone, the answer is a JudgeError."""
        answer: Future[ProcessVerdict] = Future()
        with self._lock:
            self._asked += 1
            number = self._asked
            self._waiting[number] = answer
            assert self.process.stdin is not None
            with suppress(OSError, ValueError):
                self.process.stdin.write(b"%d %s\n" % (number, question))
                self.process.stdin.flush()
        if not self.alive:
            self._give_up()
        return answer

    @property
    def alive(self) -> bool:
        """Whether it can be asked again."""
        return self.process.poll() is None

    def close(self) -> None:
        """End the process, and with it every text, and wait for it."""
        with self._lock, suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.close()
        self.process.wait()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            number, _, said = line.partition(b" ")
            with self._lock:
                answer = self._waiting.pop(int(number))
            if answer.set_running_or_notify_cancel():
                told = _read(said)
                if "crashed" in told:
                    answer.set_exception(JudgeProcessError(str(told["crashed"])[:1000]))
                else:
                    answer.set_result(ProcessVerdict(told.get("told"), told.get("fault", "")))
        self.process.wait()
        self._give_up()

    def _give_up(self) -> None:
        with self._lock:
            lost, self._waiting = list(self._waiting.values()), {}
        for answer in lost:
            if answer.set_running_or_notify_cancel():
                answer.set_exception(
                    JudgeProcessError(f"the process of {self._module} ended with {self.process.returncode}")
                )


def _read(said: bytes) -> Mapping[str, Any]:
    """An answer as the zygote wrote it; one that this thread cannot read must not end the thread."""
    try:
        return read_json(said)
    except ValueError as error:
        return {"fault": f"judging it gives an answer that cannot be read: {error}"}


class Bench:
    """The judge of one kind: started when it is first asked, and again where it was ended."""

    def __init__(self, module: str, bounds: Bounds | None = None) -> None:
        self.bounds = bounds or Bounds()
        self._module = module
        self._lock = threading.Lock()
        self._judge: JudgeProcess | None = None
        self._owner = 0

    async def ask(self, question: bytes) -> ProcessVerdict:
        """What the judge says of one text."""
        return await asyncio.wrap_future(await beside(lambda: self.judge().put(question)))

    def judge(self) -> JudgeProcess:
        """The zygote; one that died, or that belongs to the process this one was forked from, is not asked again."""
        with self._lock:
            if self._judge is None or self._owner != os.getpid() or not self._judge.alive:
                self._judge, self._owner = JudgeProcess(self._module, self.bounds), os.getpid()
            return self._judge


@cache
def warn_where_open() -> None:
    """Say once, at a task's start, what this machine cannot keep from a text that is judged."""
    held = survey(Box(without=frozenset(GUARANTEES)))
    missing = [f"that {GUARANTEES[name]}" for name in NEEDED if name not in held]
    if missing:
        warnings.warn(
            f"a text that is judged runs without the promise {', '.join(missing)}: this machine lacks Landlock "
            "(Linux 6.2 or later) or seccomp; train in a container or on another machine where texts may be hostile",
            OpenJudgeWarning, stacklevel=3,
        )  # fmt: skip
