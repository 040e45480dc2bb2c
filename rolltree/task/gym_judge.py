"""reasoning-gym's scores in processes of their own: several of its data sets evaluate a text as Python.

A text can then call anything, or compute without end. So it is scored where the environment is empty, where nothing can
be written, started or connected to (as far as the system has Landlock and seccomp; see `rolltree.task.sandbox`), and
where the system ends what takes too much processor time. What comes back is read as a number and nothing else.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from rolltree.task.foreign.seat import Stable
from rolltree.task.foreign.threads import beside
from rolltree.task.math_judge import MEMORY, SECONDS, SPARE, JudgeError
from rolltree.task.sandbox import landlock, seccomp
from rolltree.task.sandbox.inside import ENVIRONMENT, LIBRARIES
from rolltree.task.sandbox.kernel import LINUX, PR_SET_NO_NEW_PRIVS, prctl

ROOT = str(Path(__file__).resolve().parents[2])
LAUNCH = "import sys; sys.path.insert(0, sys.argv[1]); from rolltree.task.gym_judge import serve; serve()"
Config = dict[str, Any]


class Judge:
    """A process that scores one text at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, ROOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=dict(ENVIRONMENT),
        )  # fmt: skip

    def score(self, dataset: str, config: Config, entry: Any, answer: str) -> float | None:
        """The score; None where the text was too much for it, and with it this judge is gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(base64.b64encode(pickle.dumps((dataset, config, entry, answer))) + b"\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if line:
            told = json.loads(line)
            if isinstance(told, str):
                raise JudgeError(told)
            return float(told)
        self.close()
        if self._process.returncode == -signal.SIGVTALRM:
            return None
        raise JudgeError(f"the process that scores {dataset} ended with {self._process.returncode}")

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


async def judge_gym(dataset: str, config: Config, entry: Any, answer: str) -> float | None:
    """A data set's own score of a text, in another process; None where it takes too long."""
    return await beside(lambda: _judged(dataset, config, entry, answer))


def _judged(dataset: str, config: Config, entry: Any, answer: str) -> float | None:
    judge: Judge = _judges.take()
    while not judge.alive:  # somebody ended it while it had nothing to do
        judge.close()
        judge = _judges.take()
    try:
        return judge.score(dataset, config, entry, answer)
    finally:
        if judge.alive:
            _judges.back(judge)


def serve() -> None:
    """A judge's process: a line in, a line out, until its input ends."""
    import reasoning_gym

    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    _lock()
    known: dict[str, Any] = {}
    for line in sys.stdin.buffer:
        dataset, config, entry, answer = pickle.loads(base64.b64decode(line))
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        told: float | str
        try:
            key = repr((dataset, config))
            if key not in known:
                known[key] = reasoning_gym.create_dataset(dataset, **config)
            told = float(known[key].score_answer(answer, entry))
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        out.write(json.dumps(told) + "\n")
        out.flush()


def _lock() -> None:
    """Give up what scoring does not need; a layer that the system does not have is left out."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    if LINUX:
        installed = [sys.prefix, os.path.join(sys.base_prefix, "lib"), os.path.dirname(os.__file__)]
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        with suppress(OSError):
            landlock.confine([*LIBRARIES, *installed], [os.devnull])
        with suppress(OSError):
            seccomp.install()
