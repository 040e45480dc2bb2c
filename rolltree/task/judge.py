"""Texts judged in processes of their own, by code that a text can keep busy for ever or make do what it says.

The system ends what takes too long by its processor time, so a busy machine makes nobody's answer wrong. Such a text is
at fault and was not right; a judge that died of anything else is a crash, never a zero.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rolltree.task.foreign.seat import Stable
from rolltree.task.foreign.threads import beside

SECONDS = 5.0
"""Processor time that judging one text may take."""
MEMORY = 4 << 30
"""Bytes that a judge may map."""
SPARE = 2
"""Judges that wait for work; more are closed."""
ROOT = str(Path(__file__).resolve().parents[2])
LAUNCH = "import sys; sys.path.insert(0, sys.argv[1]); from {module} import serve; serve()"


class JudgeError(RuntimeError):
    """A judge died or could not be started: the text is not to blame."""


class Judge:
    """A process that runs `serve` of a module and judges one text at a time."""

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        self._module = module
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH.format(module=module), ROOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=None if environment is None else dict(environment),
        )  # fmt: skip

    def ask(self, question: bytes) -> Any:
        """What it says to a question in one line; None where that took too much, and then this judge is gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(question + b"\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        self.close()
        if self._process.returncode == -signal.SIGVTALRM:
            return None
        raise JudgeError(f"the process of {self._module} ended with {self._process.returncode}")

    def close(self) -> None:
        """End the process and wait for it."""
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
        self._process.wait()

    @property
    def alive(self) -> bool:
        """Whether it can be asked again."""
        return self._process.poll() is None


class Bench:
    """Judges of one kind, started when needed and asked again and again."""

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        self._judges = Stable(lambda: Judge(module, environment), SPARE)

    async def ask(self, question: bytes) -> Any:
        """What a judge says; None where it took more than `SECONDS` or `MEMORY`."""
        return await beside(lambda: self._ask(question))

    def _ask(self, question: bytes) -> Any:
        judge: Judge = self._judges.take()
        while not judge.alive:  # somebody ended it while it had nothing to do
            judge.close()
            judge = self._judges.take()
        try:
            return judge.ask(question)
        finally:
            if judge.alive:
                self._judges.back(judge)


def limit_memory() -> None:
    """Bound what this process may map, where the system can."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def answer_all(answer: Callable[[bytes], Any], prepare: Callable[[], None]) -> None:
    """A judge's process: a line in, a line out, until its input ends. What it prints goes where errors go."""
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    prepare()
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            told = answer(line)
        except MemoryError:
            told = None
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        out.write(json.dumps(told) + "\n")
        out.flush()
