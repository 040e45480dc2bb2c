"""MAXS: meta-adaptive exploration by looking a few steps ahead (arXiv 2601.09259)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rolltree.credit.registry import load_credit
from rolltree.generate.choose import decide
from rolltree.generate.hand import Hand
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.search.steps import finished
from rolltree.generate.signals import mean_logp
from rolltree.generate.turns import play, stretch
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError
from rolltree.recipe.searching import search_parts
from rolltree.tree import Node, Tree

# MAXS: each step is chosen by looking a few steps ahead, until looking tells candidates no more apart (arXiv
# 2601.09259).
#
# At every step M candidates are drawn and each is gone on with for N steps. With g_n the mean log-probs of these steps
# and F their foresight probability, a candidate is worth the mixture of three normalised rewards: exp((F −
# F_before)/τ), exp(−Var(g)/τ) and exp(−Var(Δg)/τ). The step is drawn with weight π(step)·exp(R/τ). Where the variance
# of R over the candidates is at most δ, the rest is written without looking ahead.

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Foresight:
    """The rule for numbers alone."""

    tau: float = 0.6
    alpha: float = 0.3
    """Weight of little variance over the steps looked at."""
    beta: float = 0.2
    """Weight of little variance of their differences."""
    delta: float = 0.002
    """Variance of R over the candidates at which looking ahead ends."""

    def rewards(self, ahead: Sequence[Sequence[float]], before: float) -> Floats:
        """R of each candidate from the mean log-probs of the steps looked at."""
        steps = [np.asarray(g, np.float64) for g in ahead]
        advantage = np.array([foreseen(g) - before for g in ahead])
        step = np.array([g.var() if len(g) else 0.0 for g in steps])
        slope = np.array([np.diff(g).var() if len(g) > 1 else 0.0 for g in steps])
        parts = [np.exp(advantage / self.tau), np.exp(-step / self.tau), np.exp(-slope / self.tau)]
        shares = (1 - self.alpha - self.beta, self.alpha, self.beta)
        return np.sum([w * self.norm(r) for w, r in zip(shares, parts, strict=True)], axis=0)

    def norm(self, rewards: Floats) -> Floats:
        """Softmax over the candidates at τ."""
        scaled = np.exp((rewards - rewards.max()) / self.tau)
        return scaled / scaled.sum()

    def chances(self, likely: Sequence[float], rewards: Floats) -> Floats:
        """The chance of each candidate: π(step)·exp(R/τ), normalised."""
        weight = np.asarray(likely, np.float64) * np.exp(rewards / self.tau)
        return weight / weight.sum()


def foreseen(ahead: Sequence[float]) -> float:
    """F: the geometric mean probability of the steps looked at; 1 where the answer has ended."""
    return float(np.exp(np.mean(ahead))) if len(ahead) else 1.0


@dataclass(frozen=True, slots=True)
class LookAheadSteps:
    """Writes `answers` answers, each step of each chosen by foresight. Steps looked at are thrown away.

    In an environment a step is a turn, and what is looked at is really played, in states of its own.
    """

    answers: int = 1
    ways: int = 4
    """M: candidates."""
    ahead: int = 4
    """N: steps looked at."""
    steps: int = 13
    """Most steps that are chosen; the rest is written on."""
    step: int = 16
    delimiter: str = ","
    rule: Foresight = Foresight()
    needs: frozenset[str] = frozenset()

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """All answers side by side, then a vote."""
        async with asyncio.TaskGroup() as group:
            for number in range(self.answers):
                group.create_task(self._answer(tree, hand, number))
        decide(hand, finished(tree), "vote")

    async def _answer(self, tree: Tree, hand: Hand, number: int) -> None:
        here, before = tree.root, 0.0
        for at in range(self.steps):
            ends = await stretch(hand, here, self.ways, why="a candidate", **self._draw(hand))
            ends = [end for end in ends if end.status in ("open", "done")]
            if not ends:
                break
            # What was gone on with is no open leaf any more.
            goes_on = [end.status == "open" for end in ends]
            looked = await asyncio.gather(*(self._look(hand, end) for end in ends))
            rewards = self.rule.rewards(looked, before)
            chances = self.rule.chances([np.exp(mean_logp(tree.path(end))) for end in ends], rewards)
            spread = float(rewards.var())
            draw = hand.rng.child("foresight", number, at).generator().random()
            chosen = min(int(np.searchsorted(np.cumsum(chances), draw, side="right")), len(ends) - 1)
            hand.event("select", ends[chosen], f"step {at + 1} by foresight", variance=spread,
                       chance=float(chances[chosen]), rewards=[round(float(r), 4) for r in rewards])  # fmt: skip
            for i, end in enumerate(ends):
                if i != chosen and end.status != "pruned":
                    hand.prune(end, why="another step was chosen")
            here, before = ends[chosen], foreseen(looked[chosen])
            if not goes_on[chosen]:
                return
            if spread <= self.rule.delta:
                hand.event("note", here, "candidates are no more told apart; the rest is written", step=at + 1)
                break
        if here.status not in ("pruned", "failed"):
            await play(hand, here)

    async def _look(self, hand: Hand, end: Node) -> list[float]:
        """Mean log-probs of the next steps; what was written for it is dropped again."""
        found: list[float] = []
        here, first = end, None
        for _ in range(self.ahead):
            if here.status != "open":
                break
            grown = await stretch(hand, here, verify=False, birth="resample", why="looked ahead", **self._draw(hand))
            if not grown:
                break
            here = grown[0]
            first = first or _below(hand.tree, end, here)
            found.append(mean_logp(hand.tree.path(here)))
        if first is not None:
            hand.prune(first, why="looked ahead")
        return found

    def _draw(self, hand: Hand) -> SamplingOptions:
        if hand.interactive:
            return {}
        return {"max_tokens": self.step, "stop": (self.delimiter,) if self.delimiter else ()}


def _below(tree: Tree, above: Node, leaf: Node) -> Node | None:
    """The node right below one on the way to another."""
    path = tree.path(leaf)
    at = next(i for i, node in enumerate(path) if node.id == above.id)
    return path[at + 1] if at + 1 < len(path) else None


@dataclass(frozen=True, slots=True)
class Maxs:
    """Every step is chosen among several by what a few steps behind each look like, without reward or second model.

    Rewards, weights and constants are the paper's. A foresight probability is the mean per token, because a product
    favours short steps; so is the probability of a step (reconstructed), and before the first step F is 0. The
    normalised rewards of four candidates differ little, so looking ahead may end at the first step: the events say at
    which variance. Little variance is also what confident repetition has.
    """

    card: ClassVar[Card] = Card(
        "maxs", "Meta-adaptive exploration", "2601.09259", 2026,
        "63.46 against 57.04 by trees of thoughts with a 65th of the tokens (MiMo-VL-7B, five sets)",
        ("generate", "control"), "best_of_n",
        Evidence("steps off the trap", "foresight without the variance terms", least=0.02, seeds=10,
                 check="rolltree_papers.maxs.study:traps"),
        counter=Counter("rollout/births/resample"),
    )  # fmt: skip
    answers: int = 1
    """Answers written so; several are voted on."""
    ways: int = 4
    """M: candidates for a step."""
    ahead: int = 4
    """N: steps looked at behind each."""
    most_steps: int = 13
    """Most steps that are chosen."""
    tau: float = 0.6
    """Temperature of rewards, of their normalisation and of the choice."""
    alpha: float = 0.3
    """Weight of little variance of the steps' log-probs."""
    beta: float = 0.2
    """Weight of little variance of their differences."""
    delta: float = 0.002
    """Variance of the rewards at which looking ahead ends; a negative number = never."""
    step: int = 16
    """Most tokens of a step."""
    delimiter: str = ","
    """What ends a step, besides the task's own stop strings; "" = nothing. In an environment a step is a turn."""

    def build(self) -> Parts:
        """Foresight over steps."""
        if min(self.answers, self.ways, self.ahead) < 1 or self.tau <= 0 or self.alpha + self.beta > 1:
            raise RecipeError(
                f"maxs: answers={self.answers}, ways={self.ways} and ahead={self.ahead} are 1 or more, "
                f"tau={self.tau:g} is above 0, and alpha + beta = {self.alpha + self.beta:g} is at most 1"
            )
        rule = Foresight(self.tau, self.alpha, self.beta, self.delta)
        strategy = LookAheadSteps(self.answers, self.ways, self.ahead, self.most_steps, self.step, self.delimiter, rule)
        parts = search_parts("maxs", strategy)
        # A group of one has no credit of its own; the batch's has.
        return parts if self.answers > 1 else replace(parts, credit=load_credit("reinforce_pp"))
