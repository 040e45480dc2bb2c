"""Several answers to each call, of which one is handed over: any strategy, with a hand that samples, scores and picks.

A call is wherever a stretch begins: at the prompt, after the environment has answered (for an agent, each of its
calls), or after a segment. The answers that are passed over stay in the tree. One that has an outcome (it was verified,
it ended, or rollouts looked ahead from it) keeps it and is trained like any other; one without is pruned, and counted.
What is handed over was selected, so it does not follow the policy's distribution.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from rolltree.control.ledger import Budget, Limits
from rolltree.engine.protocol import Engine
from rolltree.generate.hand import Hand
from rolltree.generate.judge.protocol import Judge
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.scorers import ScorerError, worth
from rolltree.generate.signals import features
from rolltree.generate.strategy import ChecksEngine, TreeStrategy, written
from rolltree.task.protocol import Task
from rolltree.tree import Birth, Node, Tree

PASSED = "another answer was handed over"


@dataclass(frozen=True, slots=True)
class Chosen:
    """`inner` grown with the best of `answers` answers at each call, by `scorer`."""

    inner: TreeStrategy
    scorer: Judge
    answers: int = 4

    def __post_init__(self) -> None:
        if not 2 <= self.answers <= 1024:
            raise ScorerError(f"answers={self.answers} leaves nothing to choose from; give 2 to 1024")

    @property
    def needs(self) -> frozenset[str]:
        """Those of the inner strategy, and what the scorer reads."""
        return self.inner.needs | features(self.scorer.want)

    @property
    def writes(self) -> frozenset[str]:
        """What the inner strategy writes."""
        return written(self.inner)

    @property
    def want(self) -> frozenset[str]:
        """What the inner strategy records."""
        return getattr(self.inner, "want", frozenset[str]())

    def check(self, engine: Engine, task: Task) -> None:
        """As the inner strategy has it."""
        if isinstance(self.inner, ChecksEngine):
            self.inner.check(engine, task)

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Let the inner strategy grow the tree with a hand that chooses."""
        await self.inner.grow_tree(tree, ChoosingHand(hand, self))


class ChoosingHand(Hand):
    """A hand whose every continuation is the best of several."""

    def __init__(self, hand: Hand, choice: Chosen) -> None:
        super().__init__(hand.setting, hand.budget, hand.tree, actor=hand.actor, level=hand.level)
        self._choice, self._plain = choice, hand

    def on(self, tree: Tree, limits: Limits | None = None) -> Hand:
        """As of `Hand`."""
        return ChoosingHand(self._plain.on(tree, limits), self._choice)

    def under(self, budget: Budget | Limits, name: str = "branch") -> Hand:
        """As of `Hand`."""
        return ChoosingHand(self._plain.under(budget, name), self._choice)

    def as_actor(self, actor: str, level: int = 0) -> Hand:
        """As of `Hand`."""
        return ChoosingHand(self._plain.as_actor(actor, level), self._choice)

    async def extend(
        self, node: Node, *, n: int = 1, want: Collection[str] = (), birth: Birth | None = None, why: str = "",
        numbers: Mapping[str, Any] | None = None, **draw: Unpack[SamplingOptions],
    ) -> list[Node]:  # fmt: skip
        """As of `Hand`: n continuations, each the best of its answers."""
        choice = self._choice
        grown = await self._plain.extend(
            node, n=n * choice.answers, want={*want, *choice.scorer.want}, birth=birth, why=why, numbers=numbers, **draw
        )
        alive = [one for one in grown if one.status in ("open", "done")]
        values = await worth(self._plain, choice.scorer, alive) if len(alive) > 1 else [0.0] * len(alive)
        values_of = {one.id: value for one, value in zip(alive, values, strict=True)}
        return [self._best(grown[i::n], values_of) for i in range(min(n, len(grown)))]

    def _best(self, answers: Sequence[Node], values: Mapping[int, float]) -> Node:
        """The answer that is worth most, the earliest of equals; the others are passed over."""
        living = [one for one in answers if one.id in values and one.status in ("open", "done")]
        if not living:
            return answers[0]
        best = max(living, key=lambda one: (values[one.id], -one.id))
        for one in living:
            if math.isfinite(values[one.id]):
                one.scores["value"] = values[one.id]
        if len(living) > 1:
            told = {str(one.id): one.scores["value"] for one in living if "value" in one.scores}
            self.event("select", best, f"the best of {len(living)} answers", values=told)
        for one in living:
            if one is not best:
                self._pass_over(one)
        return self._onward(best)

    def _pass_over(self, answer: Node) -> None:
        """An outcome stays with its credit; where there is none, nothing is learned from the answer."""
        if any("reward" in leaf.scores for leaf in self.tree.leaves(answer)):
            if answer.is_leaf and answer.status == "open":
                self.close(answer, "depth", PASSED)
        else:
            self.prune(answer, why=PASSED, **{k: v for k, v in answer.scores.items() if k == "value"})

    def _onward(self, best: Node) -> Node:
        """Where the rollout goes on. What was said of an answer as if it were the last is no outcome of it."""
        if best.is_leaf:
            if best.status == "open":
                for name in [name for name in best.scores if name != "value"]:
                    del best.scores[name]
                best.notes.pop("answer", None)
            return best
        first = self.tree.children(best)[0]
        here = first if first.role == "env" else best
        if not here.is_leaf:
            here.status = "open"  # rollouts looked ahead from here, and the strategy's own goes on from here too
        return here
