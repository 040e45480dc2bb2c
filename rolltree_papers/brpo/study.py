"""A bandit whose answers only a noisy judge can tell apart: verdicts of comparisons against grades."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rolltree.credit.advantage import Advantage, Credit
from rolltree.credit.registry import load_credit
from rolltree.filter.lengths import Shaper
from rolltree.filter.versus import Versus
from rolltree.generate.judge.measured import MeasuredJudge
from rolltree.tree import Node
from rolltree.tree.table import Floats, Table
from studies.exact.bandit import train
from studies.lab.claim import Measured

ANSWERS, LEAK, NOISE, BIAS = 50, 0.5, 0.3, 0.15
"""Answers of a prompt; what a trait that merely impresses adds to a reading; deviation of a reading; what the answer
read first gains."""


@dataclass(frozen=True)
class Shaped:
    """A credit of what a shaper makes of each tree first."""

    shaper: Shaper
    credit: Credit
    verdicts: list[float] = field(default_factory=list[float])
    """How many leaves of each tree won or lost."""

    @property
    def needs(self) -> frozenset[str]:
        """The credit's."""
        return self.credit.needs

    def __call__(self, table: Table) -> Advantage:
        """Shape, then credit."""
        for tree in table.trees:
            self.shaper(tree, 1)
            self.verdicts.append(sum(abs(leaf.scores.get("versus", 0.0)) > 0 for leaf in tree.leaves()))
        return self.credit(table)


def qualities(credit: Credit, seed: int, readings: int = 1, leak: float = LEAK, noise: float = NOISE) -> list[float]:
    """Mean quality of the answers step by step; the judge's `impression` of an answer is its quality and a part of its
    impressive trait, its reward one grade: the mean of so many noisy readings."""
    rng = np.random.default_rng([37, seed])
    quality, trait = (rng.permutation(np.linspace(0, 1, ANSWERS)) for _ in range(2))
    impression = quality + leak * trait

    def judge(leaf: Node, answer: int) -> None:
        grade = impression[answer] + noise * rng.normal() / np.sqrt(readings)
        leaf.scores.update(reward=float(grade), impression=float(impression[answer]))

    start: Floats = np.zeros((8, ANSWERS))
    return [float((p @ quality).mean()) for p in train(credit, start, judge, group=16, steps=150, rate=0.5, seed=seed)]


def brpo(seed: int) -> Measured:
    """Quality after training on verdicts (both orders, one vote each) against grades of as many readings."""
    verdicts = Versus(MeasuredJudge("impression", NOISE, BIAS))
    own = Shaped(verdicts, load_credit("pairwise"))
    curves = {
        "BRPO": qualities(own, seed),
        "BRPO, mixed verdicts 0": qualities(Shaped(verdicts, load_credit("pairwise", split="zero")), seed),
        "GRPO on grades": qualities(load_credit("grpo"), seed, readings=2),
    }
    shown = {name: ([float(i) for i in range(len(c))], c) for name, c in curves.items()}
    acted = {"answers that won or lost": float(sum(own.verdicts))}
    return Measured(curves["BRPO"][-1], curves["GRPO on grades"][-1], shown, acted)
