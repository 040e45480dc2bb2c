"""Mathematical answers compared where an expression that never ends harms nobody.

A policy can write `9^{9^{9^9}}`, and whoever compares that by value computes until the end of time, in one operation
that no thread can interrupt. Such an expression is a wrong answer.
"""

from __future__ import annotations

import json
from typing import Any

from rolltree.task.items import TaskError
from rolltree.task.judge import MEMORY, SECONDS, Bench, JudgeError, answer_all, limit_memory
from rolltree.task.math_score import score_math
from rolltree.task.protocol import Verdict

_bench = Bench(__name__)


async def judge_math(answer: str, text: str) -> Verdict:
    """`score_math` in another process; an expression that takes too long or too much memory is a wrong answer."""
    told = await _bench.ask(json.dumps([answer, text]).encode("ascii"))
    if told is None:
        too_much = f"comparing it takes more than {SECONDS:g} s of computing or {MEMORY >> 30} GiB"
        return Verdict(0.0, {"parses": 0.0}, why=too_much)
    if "refused" in told:
        raise TaskError(told["refused"])
    if "crashed" in told:
        raise JudgeError(told["crashed"])
    return Verdict(**told)


def serve() -> None:
    """The process in which `judge_math` compares."""
    answer_all(_told, _prepare)


def _prepare() -> None:
    limit_memory()
    score_math("1", "1")  # what is loaded on first use counts against nobody


def _told(line: bytes) -> dict[str, Any]:
    try:
        verdict = score_math(*json.loads(line))
    except TaskError as error:
        return {"refused": str(error)}
    except MemoryError:
        raise
    except Exception as error:
        return {"crashed": f"{type(error).__name__}: {error}"}
    return {"score": verdict.score, "parts": dict(verdict.parts), "answer": verdict.answer, "why": verdict.why}
