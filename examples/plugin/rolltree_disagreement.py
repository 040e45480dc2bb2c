"""A whole recipe in one file: more samples where the first ones disagree, more credit where the policy is unsure."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.control.order import Order
from rolltree.control.plan import Nothing, Plan, Step
from rolltree.credit.advantage import Advantage, Under
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import load_credit
from rolltree.generate.hand import Hand
from rolltree.generate.turns import play
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Parts
from rolltree.tree import Tree
from rolltree.tree.table import Table


@dataclass(frozen=True, slots=True)
class MoreWhereTheyDisagree:
    """A few samples of a prompt, and more where their rewards differ."""

    n: int = 8
    """Samples where the first ones disagree; a control may ask for another number."""
    first: int = 2
    needs: frozenset[str] = frozenset()

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Sample, compare, sample again."""
        probes = await asyncio.gather(*(play(hand, tree.root) for _ in range(self.first)))
        if len({leaf.scores.get("reward") for leaf in probes}) > 1:
            more = self.n - self.first
            hand.event("allocate", tree.root, "the first samples disagree", more=more)
            await asyncio.gather(*(play(hand, tree.root) for _ in range(more)))


@dataclass(frozen=True, slots=True)
class Unsure:
    """The outcome less the group's mean, times 1 + boost · (1 − p) at an action the policy now has at p."""

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "action:now"})
    reads: ClassVar[frozenset[str]] = frozenset({"action:now"})
    boost: float = 1.0
    """How much more an action teaches that the policy holds for impossible than one it is sure of."""

    def read(self, table: Table, under: Under) -> None:
        """Let the trainer read each action's log-prob, and keep it on the nodes."""
        now = under(lambda policy, packed: policy.read(packed).logp)
        for node, start, length in zip(table.nodes, table.start, table.length, strict=True):
            node.notes["now"] = now[start : start + length]

    def __call__(self, table: Table) -> Advantage:
        """The advantage of the leaves, and a factor of at least 1 at each action."""
        now = np.concatenate([np.asarray(node.notes["now"], np.float64) for node in table.nodes])
        factor = 1.0 + self.boost * (1.0 - np.exp(np.nan_to_num(now)))
        return Advantage(leaf=load_credit("dr_grpo")(table).leaf, factor=factor, counted=np.isfinite(outcomes(table)))


@dataclass(frozen=True, slots=True)
class ShortFirst:
    """Of twice as many prompts as a step needs, the shortest are asked."""

    name: ClassVar[str] = "short_first"
    needs: ClassVar[frozenset[str]] = frozenset()

    def start(self) -> Nothing:
        """Nothing to remember."""
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        """One round."""
        items = sorted(step.supply.take(2 * step.prompts), key=lambda item: len(item.prompt))
        yield [Order(prompt, last=True) for prompt in step.prompts_of(items[: step.prompts])]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Rollouts go where the first two disagree; credit goes where the policy is unsure; short prompts go first."""

    card: ClassVar[Card] = Card(
        "disagreement", "More where they disagree", "example", 2026, "an example claims nothing",
        ("generate", "control", "credit"), "grpo",
    )  # fmt: skip
    group: int = 8
    """Samples of a prompt whose first ones disagree."""
    first: int = 2
    """Samples of every other prompt."""
    boost: float = 1.0
    """How much more an action teaches that the policy holds for impossible than one it is sure of."""

    def build(self) -> Parts:
        """All parts are of this file."""
        return Parts(
            "disagreement", MoreWhereTheyDisagree(self.group, self.first), Unsure(self.boost),
            load_objective("clipped"), control=ShortFirst(),
        )  # fmt: skip
