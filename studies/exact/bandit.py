"""Bandits trained with shipped credits: claims about learning that need no language, in seconds.

A prompt is a row of logits over its answers. A step draws a group from each row, credits the trees they make, and moves
the logits along the exact score of the two channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rolltree.credit.advantage import Credit
from rolltree.credit.fold import fold, leaf_weights
from rolltree.filter.lengths import Shaper
from rolltree.tree import Node, Tree
from rolltree.tree.table import Floats, table

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
