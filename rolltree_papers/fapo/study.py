"""FAPO on bandits with flawed answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rolltree.credit.advantage import Credit
from rolltree.credit.registry import load_credit
from rolltree.recipe.registry import load_recipe
from rolltree.tree import Node
from studies.exact.bandit import Judge, train
from studies.lab.claim import Measured


def fapo(seed: int) -> Measured:
    """Share of clean answers after training with FAPO against a reward that sees the same flaws and calls them wrong.

    Answers of 16 prompts are clean 0.1, flawed (right, by wrong steps) 0.2 or wrong 0.7 at the start. The curves are
    the clean share step by step, and that of the outcome alone, which sees no flaw.
    """
    start = np.tile(np.log([0.1, 0.2, 0.7]), (16, 1))
    halved = 0

    def graded(flawed: float, *, counts: bool = False) -> Judge:
        def judge(leaf: Node, answer: int) -> None:
            nonlocal halved
            leaf.scores.update(reward=(1.0, flawed, 0.0)[answer], flawed=float(answer == 1))
            halved += counts and answer == 1

        return judge

    arms: dict[str, tuple[Credit, Judge]] = {
        "FAPO": (load_recipe("fapo").build().credit, graded(1.0, counts=True)),
        "flawed is wrong": (load_credit("grpo"), graded(0.0)),
        "outcome alone": (load_credit("grpo"), graded(1.0)),
    }
    clean = dict[str, list[float]]()
    for name, (credit, judge) in arms.items():
        clean[name] = [float(policy[:, 0].mean()) for policy in train(credit, start, judge, rate=0.1, seed=seed)]
    acted = {"flawed answers that were worth half": float(halved)}
    return Measured(clean["FAPO"][-1], clean["flawed is wrong"][-1], {n: _curve(c) for n, c in clean.items()}, acted)


def _curve(values: Sequence[float]) -> tuple[list[float], list[float]]:
    return [float(i) for i in range(len(values))], list(values)
