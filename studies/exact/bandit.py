"""Bandits trained with shipped credits: claims about learning that need no language, in seconds.

A prompt is a row of logits over its answers. A step draws a group from each row, credits the trees they make, and moves
the logits along the exact score of the two channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rolltree.credit.advantage import Credit
from rolltree.credit.fold import fold, leaf_weights
from rolltree.credit.registry import load_credit
from rolltree.filter.lengths import Shaper
from rolltree.recipe.registry import load_recipe
from rolltree.tree import Node, Tree
from rolltree.tree.table import Floats, table
from studies.lab.claim import Measured

Judge = Callable[[Node, int], None]
"""Writes the scores of a leaf, given its answer."""


def softmax(logits: Floats) -> Floats:
    """π(answer | prompt), row by row."""
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def train(
    credit: Credit, start: Floats, judge: Judge, *, group: int = 8, steps: int = 200, rate: float = 1.0, seed: int = 0,
    shapers: Sequence[Shaper] = (),
) -> list[Floats]:  # fmt: skip
    """The policies (prompts, answers) before each step and after the last; `shapers` see each group before credit."""
    rng = np.random.default_rng(seed)
    logits = np.array(start, np.float64)
    out = [softmax(logits)]
    for _ in range(steps):
        policy = out[-1]
        trees: list[Tree] = []
        for p, row in enumerate(policy):
            tree = Tree(f"p{p}", [0])
            for answer in rng.choice(len(row), group, p=row):
                leaf = tree.extend(0, [int(answer)], status="done")
                judge(leaf, int(answer))
            for shaper in shapers:
                shaper(tree, 1)
            trees.append(tree)
        view = table(trees)
        advantage = credit(view)
        folded = fold(view, advantage, leaf_weights(view, "group", counted=advantage.counted))
        push, answer = folded.gain + folded.loss, view.flat("actions").astype(np.int64)
        row = np.repeat(view.tree, view.length)
        step = np.zeros_like(logits)
        np.add.at(step, (row, answer), push)
        # ∇ log π(a) = e_a − π, weighted with what the two channels say at ratio 1.
        step -= np.bincount(row, push, len(logits))[:, None] * policy
        logits += rate * len(logits) * step
        out.append(softmax(logits))
    return out


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
