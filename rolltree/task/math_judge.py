"""Mathematical answers compared where an expression that never ends harms nobody.

A policy can write `9^{9^{9^9}}`, and whoever compares that by value computes until the end of time, in one operation
that no thread can interrupt. Such an expression is a wrong answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from typing import Any

from rolltree.task import zygote
from rolltree.task.items import TaskError
from rolltree.task.judge import Bench
from rolltree.task.math_score import score_math
from rolltree.task.protocol import Verdict

FORMS = (
    ("1/2", r"\boxed{7}"), (r"\frac{1}{2}", "0.5"), ("$x^2+1$", "$x^2$"), (r"$\sqrt{2}$", r"$\sqrt[3]{8}$"),
    ("$(1, 2]$", "$[1, 2)$"), (r"$\{1, 2\}$", r"$\{1, 3\}$"), ("$x=3$", "$x=4$"), (r"$\sin(x)$", r"$\cos(x)$"),
    (r"$\begin{pmatrix}1\\2\end{pmatrix}$", r"$\begin{pmatrix}1\\3\end{pmatrix}$"), ("$x<3$", r"$x\le 3$"),
)  # fmt: skip
"""An answer and a text of each kind that math-verify compares in its own way."""
TRIED = 256
"""Reference answers without a digit that are tried before a run: a few seconds' work."""
_bench = Bench(__name__)


async def judge_math(answer: str, text: str) -> Verdict:
    """`score_math` in another process; an expression that takes too much computing or memory is a wrong answer."""
    judged = await _bench.ask(json.dumps([answer, text]).encode("ascii"))
    if judged.fault:
        return Verdict(0.0, {"parses": 0.0}, why=judged.fault)
    if "refused" in judged.told:
        raise TaskError(judged.told["refused"])
    return Verdict(**judged.told)


async def unreadable(answers: Iterable[str]) -> str | None:
    """The first of these reference answers that math-verify does not read as mathematics; None where it reads all.

    Whatever holds a digit is read as an expression; of all others, each is tried once, up to `TRIED` of them.
    """
    odd = [answer for answer in dict.fromkeys(answers) if not any(map(str.isdigit, answer))]
    for answer in odd[:TRIED]:
        try:
            await judge_math(answer, "")
        except TaskError:
            return answer
    return None


def serve() -> None:
    """The process that forks the ones in which `judge_math` compares."""
    zygote.serve(_load, _plan)


def _load() -> None:
    for answer, text in FORMS:  # what is loaded on first use is loaded once, and counts against nobody
        score_math(answer, text)


def _plan(line: bytes) -> partial[dict[str, Any]]:
    return partial(_told, *json.loads(line))


def _told(answer: str, text: str) -> dict[str, Any]:
    try:
        verdict = score_math(answer, text)
    except TaskError as error:
        return {"refused": str(error)}
    return {"score": verdict.score, "parts": dict(verdict.parts), "answer": verdict.answer, "why": verdict.why}
