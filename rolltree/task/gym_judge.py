"""reasoning-gym's scores where a text reaches nothing: several of its data sets evaluate a text as Python.

A text can then call anything, or compute without end. So it is scored where the environment is empty, and where nothing
can be written, started or connected to (as far as the system has Landlock and seccomp; see `rolltree.task.sandbox`).
What comes back is read as a number and nothing else. A text that is evaluated can still give itself any score.
"""

from __future__ import annotations

import base64
import os
import pickle
import sys
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

from rolltree.task.judge import Bench, JudgeError, answer_all, limit_memory
from rolltree.task.sandbox import landlock, seccomp
from rolltree.task.sandbox.inside import ENVIRONMENT, LIBRARIES
from rolltree.task.sandbox.kernel import LINUX, PR_SET_NO_NEW_PRIVS, prctl

Config = dict[str, Any]

_bench = Bench(__name__, ENVIRONMENT)


async def judge_gym(dataset: str, config: Config, entry: Any, answer: str) -> float | None:
    """A data set's own score of a text, in another process; None where it takes too long or too much memory."""
    told = await _bench.ask(base64.b64encode(pickle.dumps((dataset, config, entry, answer))))
    if isinstance(told, str):
        raise JudgeError(told)
    return None if told is None else float(told)


def serve() -> None:
    """The process in which `judge_gym` scores."""
    answer_all(_told, _prepare)


def _prepare() -> None:
    """Load what is needed and give up what scoring does not need; a layer that the system lacks is left out."""
    import_module("reasoning_gym")  # what is loaded on first use counts against nobody
    limit_memory()
    if LINUX:
        installed = [sys.prefix, os.path.join(sys.base_prefix, "lib"), os.path.dirname(os.__file__)]
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        with suppress(OSError):
            landlock.confine([*LIBRARIES, *installed], [os.devnull])
        with suppress(OSError):
            seccomp.install()


def _told(line: bytes) -> float | str:
    dataset, config, entry, answer = pickle.loads(base64.b64decode(line))
    try:
        return float(_scorer(dataset, pickle.dumps(config)).score_answer(answer, entry))
    except MemoryError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@cache
def _scorer(dataset: str, config: bytes) -> Any:
    import reasoning_gym

    return reasoning_gym.create_dataset(dataset, **pickle.loads(config))
