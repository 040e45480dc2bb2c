"""reasoning-gym's scores where a text reaches nothing: several of its data sets evaluate a text as Python.

A text can then call anything, or compute without end, so each is scored in a process of its own that ends with it
(`rolltree.task.zygote`). A text that is evaluated can still give itself any score; it cannot touch another's.
"""

from __future__ import annotations

import base64
import math
import pickle
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from typing import Any

from rolltree.task import zygote
from rolltree.task.judge import Bench, JudgeProcessError, ProcessVerdict

Config = dict[str, Any]

_bench = Bench(__name__)


async def judge_gym(dataset: str, config: Config, entry: Any, answer: str) -> ProcessVerdict:
    """A data set's own score of a text, in another process, or the text's fault."""
    judged = await _bench.ask(base64.b64encode(pickle.dumps((dataset, config, entry, answer))))
    score = judged.told
    if not judged.fault and not (isinstance(score, float) and math.isfinite(score)):
        raise JudgeProcessError(f"{dataset} scores a text with {score!r}, which is no number")
    return judged


def serve() -> None:
    """The process that forks the ones in which `judge_gym` scores."""
    zygote.serve(lambda: (import_module("reasoning_gym"), None)[1], _plan)


def _plan(line: bytes) -> partial[float]:
    """Everything but the text is ours, and is made ready here."""
    dataset, config, entry, answer = pickle.loads(base64.b64decode(line))
    return partial(_score, _scorer(dataset, pickle.dumps(config)), answer, entry)


def _score(dataset: Any, answer: str, entry: Any) -> float:
    return float(dataset.score_answer(answer, entry))


@cache
def _scorer(dataset: str, config: bytes) -> Any:
    import reasoning_gym

    made = reasoning_gym.create_dataset(dataset, **pickle.loads(config))
    # What scoring loads on first use is loaded here once, by an answer of the data set's own, and not in every process.
    with suppress(Exception):
        entry = made[0]
        made.score_answer(entry["answer"], entry)
    return made
