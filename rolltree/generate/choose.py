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
from typing import Any, Literal, Unpack

import numpy as np

from rolltree.control.ledger import Budget, Limits
from rolltree.engine.protocol import Engine
from rolltree.generate.hand import Hand
from rolltree.generate.judge.measured import answer_of, tally
from rolltree.generate.judge.protocol import Judge, JudgeError, Question, entries
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.scorers import ScorerError, worth
from rolltree.generate.signals import features
from rolltree.generate.strategy import ChecksEngine, TreeStrategy, written
from rolltree.task.protocol import Task
from rolltree.tree import Birth, Node, Tree

# Which rollout of a tree is handed over: what the strategy chose, or the most frequent answer where it chose none.


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen among the finished rollouts of a tree."""

    answer: str | None
    """In normal form; None = no rollout gave one."""
    leaf: Node | None
    """The most valued rollout with that answer; of all, where none gave an answer."""
    how: Literal["method", "majority"]
    finished: Sequence[Node]
    """Ends of rollouts, by the policy's word or the environment's, and inner nodes that are answers too."""
    voters: Sequence[Node]
    """Rollouts that gave an answer."""
    mine: Sequence[Node]
    """Those that gave the chosen one."""


def choice(tree: Tree) -> Choice:
    """The choice of a tree that was grown."""
    # Whoever wrote last: where the environment ends an episode, the outcome stands on its word.
    finished = [n for n in tree if n.status == "done" and n.role != "prompt" and ("reward" in n.scores or n.is_leaf)]
    voters = [n for n in finished if answer_of(n) is not None]
    said, how = tree.notes.get("answer"), "method"
    if said is None and voters:
        shares = tally(tree, voters, "leaf")
        said, how = max(shares, key=lambda a: shares[a]), "majority"
    mine = [n for n in voters if answer_of(n) == said]
    best = max(mine or finished, key=lambda n: n.scores.get("value", 0.0), default=None)
    return Choice(None if said is None else str(said), best, how, finished, voters, mine)


# What a search makes of a judge's numbers: grades of paths, and one answer for a tree.


async def grades(hand: Hand, judge: Judge, nodes: Sequence[Node]) -> list[float]:
    """One number for each node by itself. Where the judge abstained or broke, the lowest of the others', which is
    counted in the event: an unknown path is no promising one. A judge that answers nothing at all fails the tree.
    """
    if not nodes:
        return []
    asked: list[Question] = [[entry] for entry in entries(hand, nodes, texts=judge.calls(1) > 0)]
    said = await hand.judge(judge, asked, about="paths")
    if all(opinion is None for opinion in said):
        raise JudgeError(
            f"the judge {judge.name!r} answered none of {len(nodes)} questions about paths; the tree's events say why"
        )
    values = [float("nan") if opinion is None else opinion[0] for opinion in said]
    known = [value for value in values if not np.isnan(value)]
    if len(known) < len(values):
        hand.event("note", None, "paths without a grade have the lowest", ungraded=len(values) - len(known))
    least = min(known, default=0.0)
    return [least if np.isnan(value) else value for value in values]


def decide(hand: Hand, leaves: Sequence[Node], how: Literal["vote", "best"]) -> str | None:
    """The answer of a search, written into the tree's notes: most `value` in all, or that of the best leaf.

    Where nobody scored the leaves each is worth 1, and the vote is the majority.
    """
    voters = [leaf for leaf in leaves if answer_of(leaf) is not None]
    if not voters:
        hand.event("note", None, "no leaf has an answer to choose")
        return None
    shares = tally(hand.tree, voters, "value", best=how == "best")
    answer = max(shares, key=lambda a: shares[a])
    hand.tree.notes["answer"] = answer
    hand.event("note", None, f"the answer by {how} is {answer!r}", share=shares[answer], answers=len(shares))
    return answer


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
