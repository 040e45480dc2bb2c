"""Mathematical answers judged in processes of their own.

A policy can write `9^{9^{9^9}}`, and whoever compares that by value computes until the end of time, in one operation
that no thread can interrupt. So expressions are read where the system ends what takes too long, by its processor time:
a busy machine makes nobody's answer wrong. Such an expression is a wrong answer; a judge that died of anything else is
a crash.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from rolltree.task.foreign.seat import Stable
from rolltree.task.foreign.threads import beside
from rolltree.task.items import TaskError
from rolltree.task.math_score import score_math
from rolltree.task.protocol import Verdict

SECONDS = 5.0
"""Processor time that reading and comparing one text may take."""
MEMORY = 4 << 30
"""Bytes that a judge may map."""
SPARE = 2
"""Judges that wait for work; more are closed."""
ROOT = str(Path(__file__).resolve().parents[2])
LAUNCH = "import sys; sys.path.insert(0, sys.argv[1]); from rolltree.task.math_judge import serve; serve()"


class JudgeError(RuntimeError):
    """A judge died or could not be started: the text is not to blame."""


class Judge:
    """A process that scores one text at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, ROOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, encoding="ascii",
        )  # fmt: skip

    def score(self, answer: str, text: str) -> Verdict | None:
        """The verdict; None where the text was too much for it, and with it this judge is gone."""
        with suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps([answer, text]) + "\n")
            self._process.stdin.flush()
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            told: dict[str, Any] = json.loads(line)
            if "refused" in told:
                raise TaskError(told["refused"])
            if "crashed" in told:
                raise JudgeError(told["crashed"])
            return None if told.get("memory") else Verdict(**told)
        self.close()
        if self._process.returncode == -signal.SIGVTALRM:
            return None
        raise JudgeError(f"the process that compares mathematical answers ended with {self._process.returncode}")

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


_judges = Stable(Judge, SPARE)


async def judge_math(answer: str, text: str) -> Verdict:
    """`score_math` in another process; an expression that takes too long or too much memory is a wrong answer."""
    return await beside(lambda: _judged(answer, text))


def _judged(answer: str, text: str) -> Verdict:
    judge: Judge = _judges.take()
    while not judge.alive:  # somebody ended it while it had nothing to do
        judge.close()
        judge = _judges.take()
    try:
        verdict = judge.score(answer, text)
    finally:
        if judge.alive:
            _judges.back(judge)
    too_much = f"comparing it takes more than {SECONDS:g} s of computing or {MEMORY >> 30} GiB"
    return Verdict(0.0, {"parses": 0.0}, why=too_much) if verdict is None else verdict


def serve() -> None:
    """A judge's process: a line in, a line out, until its input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    score_math("1", "1")  # what is loaded on first use counts against nobody
    for line in sys.stdin:
        answer, text = json.loads(line)
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        told = _told(answer, text)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        out.write(json.dumps(told) + "\n")
        out.flush()


def _told(answer: str, text: str) -> dict[str, Any]:
    try:
        verdict = score_math(answer, text)
    except TaskError as error:
        return {"refused": str(error)}
    except MemoryError:
        return {"memory": True}
    except Exception as error:
        return {"crashed": f"{type(error).__name__}: {error}"}
    return {"score": verdict.score, "parts": dict(verdict.parts), "answer": verdict.answer, "why": verdict.why}
