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
from rolltree.lab.claim import Measured
from rolltree.tree import Node, Tree
from rolltree.tree.table import Floats, table

Judge = Callable[[Node, int], None]
"""Writes the scores of a leaf, given its answer."""


def softmax(logits: Floats) -> Floats:
    """π(answer | prompt), row by row."""
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def train(
    credit: Credit, start: Floats, judge: Judge, *, group: int = 8, steps: int = 200, rate: float = 1.0, seed: int = 0
) -> list[Floats]:
    """The policies (prompts, answers) before each step and after the last."""
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
    """Share of clean answers after training with FAPO against the outcome alone (clean 0.1, flawed 0.2, wrong 0.7).

    Answers of 16 prompts are clean, flawed (right, by wrong steps) or wrong. The curves are the clean share step by
    step, and that of a reward which calls flawed answers wrong from the start.
    """
    start = np.tile(np.log([0.1, 0.2, 0.7]), (16, 1))

    def graded(flawed: float) -> Judge:
        def judge(leaf: Node, answer: int) -> None:
            leaf.scores.update(reward=(1.0, flawed, 0.0)[answer], flawed=float(answer == 1))
            marked[flawed] += answer == 1

        return judge

    marked = dict.fromkeys((1.0, 0.0), 0)

    arms: dict[str, tuple[Credit, Judge]] = {
        "FAPO": (load_credit("flawed_positive", penalty=0.5), graded(1.0)),
        "outcome alone": (load_credit("grpo"), graded(1.0)),
        "flawed is wrong": (load_credit("grpo"), graded(0.0)),
    }
    clean, acted = dict[str, list[float]](), dict[str, float]()
    for name, (credit, judge) in arms.items():
        clean[name] = [float(policy[:, 0].mean()) for policy in train(credit, start, judge, rate=0.1, seed=seed)]
        acted = acted or {"flawed answers that were worth less": float(marked[1.0])}
    return Measured(clean["FAPO"][-1], clean["outcome alone"][-1], {n: _curve(c) for n, c in clean.items()}, acted)


def _curve(values: Sequence[float]) -> tuple[list[float], list[float]]:
    return [float(i) for i in range(len(values))], list(values)
