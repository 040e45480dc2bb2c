"""Several answers to one call of a client: which one it hears. The others stay in the tree.

As with `rolltree.generate.choose`: an answer that the verifier judged keeps its outcome and is trained like any other;
one without an outcome is pruned, and counted. What is handed over was selected.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

import numpy as np

from rolltree.engine.protocol import Engine
from rolltree.gateway.errors import GatewayError
from rolltree.generate.answers import verdict_of
from rolltree.generate.judge.protocol import Entry, Judge
from rolltree.generate.scorers import FunctionJudge, LookAhead, Verified
from rolltree.generate.setting import Patience, attempt
from rolltree.generate.signals import features
from rolltree.task.protocol import Item, Task, Verdict
from rolltree.tree import Node, Tree

PASSED = "another answer was handed over"
Value = float | Verdict | Exception


@dataclass(frozen=True, slots=True)
class AnswerChoice:
    """The best of `answers` answers to each call, by `scorer`. A verifier judges the text of an answer by itself."""

    scorer: Judge
    answers: int = 4
    task: Task | None = None

    def check(self, engine: Engine) -> None:
        """Refuse what cannot be scored here, before anything is served."""
        if not 2 <= self.answers <= 1024:
            raise GatewayError(f"answers={self.answers} leaves nothing to choose from; give 2 to 1024")
        if isinstance(self.scorer, LookAhead):
            raise GatewayError(
                "a client's program cannot be run ahead; choose lookahead with --agent, or another scorer"
            )
        if isinstance(self.scorer, Verified) and self.task is None:
            raise GatewayError("no task was given to verify answers with; start with --task, or choose another scorer")
        if isinstance(self.scorer, Verified) and self.task is not None and self.task.max_turns:
            raise GatewayError(f"{self.task.name} judges its own environment, not a text; choose another scorer")
        if missing := engine.capabilities.lacking(features(self.scorer.want)):
            raise GatewayError(f"this engine cannot report {missing[0]}, which the scorer reads; choose another scorer")

    async def values(
        self, tree: Tree, item: Item | None, asked: str, answers: Sequence[tuple[Node, str]]
    ) -> list[Value]:
        """What each answer is worth: a number, a verdict, or why it could not be said."""
        if isinstance(self.scorer, Verified):
            if item is None or self.task is None:
                raise GatewayError("this session is of no item of the task; open it by POST /sessions")
            task, about = self.task, item
            return await _all([verdict_of(task.verify(about, None, text)) for _, text in answers])
        if isinstance(self.scorer, FunctionJudge):
            judge = self.scorer
            return await _all([judge.value(asked, text) for _, text in answers])
        said = await self.scorer(None, [[Entry(tree, node)] for node, _ in answers], np.random.default_rng(0))
        return [math.nan if opinion is None else float(opinion[0]) for opinion in said]


def best_of(tree: Tree, answers: Sequence[Node], values: Sequence[Value], *, at: float, session: str) -> Node:
    """The answer that is worth most, the earliest of equals. What is known of each is written down."""
    worth: dict[int, float] = {}
    for node, value in zip(answers, values, strict=True):
        if isinstance(value, Exception):
            why = f"scoring an answer: {type(value).__name__}: {value}"
            tree.close(node, "failed", "error", why, at=at, session=session)
            continue
        score = value.score if isinstance(value, Verdict) else value
        if len(node) and not math.isnan(score):
            worth[node.id] = node.scores["value"] = score
    if not worth:
        errors = [str(value) for value in values if isinstance(value, Exception)]
        raise GatewayError(f"no answer could be scored{': ' if errors else ''}{errors[0] if errors else ''}", 500)
    best = max((node for node in answers if node.id in worth), key=lambda node: (worth[node.id], -node.id))
    told = {str(id): value for id, value in worth.items()}
    tree.event("select", best, f"the best of {len(answers)} answers", at=at, values=told, session=session)
    for node, value in zip(answers, values, strict=True):
        if node is best or isinstance(value, Exception):
            continue
        if isinstance(value, Verdict) and len(node):
            node.scores.update({**value.parts, "reward": value.score})
            node.notes["answer"] = value.answer
            tree.event("verify", node, value.why or PASSED, at=at, reward=value.score, session=session)
        else:
            node.status = "pruned"
            tree.event("prune", node, PASSED, at=at, tokens=len(node), session=session)
    return best


async def _all(calls: Sequence[Awaitable[float] | Awaitable[Verdict]]) -> list[Value]:
    patience = Patience(tries=1)

    async def one(call: Awaitable[float] | Awaitable[Verdict]) -> Value:
        async def ask() -> float | Verdict:
            return await call

        try:
            return await attempt("scoring", ask, patience, patience.judge_seconds, on_retry=lambda *_: None)
        except Exception as error:
            return error

    return list(await asyncio.gather(*map(one, calls)))
