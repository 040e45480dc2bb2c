"""What training on one's own majority does (TTRL): tabular answers to questions, labels and credit by the real parts.

Each question's first answer is right and a little likelier than the others before training; on some of the questions
another one is likelier all the same, and there the majority is wrong.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rolltree.lab.claim import Measured
from rolltree.recipe.registry import load_recipe
from rolltree.tree import Tree
from rolltree.tree.table import table

QUESTIONS, ANSWERS, STEPS, RATE = 16, 5, 40, 2.0
HEAD_START, SPREAD = 1.0, 1.0
"""Of the right answer's logit, and the deviation of every logit."""


def softmax(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Along the last axis."""
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def trained(seed: int) -> tuple[float, float, float, float]:
    """pass@1 before and after, the share of questions whose likeliest answer was right, and the mean winning vote."""
    rng, parts = np.random.default_rng([2504, seed]), load_recipe("ttrl").build()
    z = rng.normal(0.0, SPREAD, (QUESTIONS, ANSWERS))
    z[:, 0] += HEAD_START
    before, likeliest, won = softmax(z)[:, 0].mean(), float((z.argmax(1) == 0).mean()), list[float]()
    for _ in range(STEPS):
        p = softmax(z)
        for q in range(QUESTIONS):
            tree, said = Tree("t", [0]), rng.choice(ANSWERS, size=16, p=p[q])
            for answer in said.tolist():
                leaf = tree.extend(tree.root, [answer], status="done", scores={"reward": float(answer == 0)})
                leaf.notes["answer"] = str(answer)
            for shape in parts.shapers:
                shape(tree, 48)
            won.append(max(leaf.scores["vote"] for leaf in tree.leaves()))
            rows = table([tree])
            value = parts.credit(rows).leaf
            assert value is not None
            taught = [leaf for leaf, live in zip(tree.leaves(), rows.live.tolist(), strict=True) if live]
            worth = value[rows.live]
            push = np.zeros(ANSWERS)
            for leaf, a in zip(taught, worth.tolist(), strict=True):
                push += a * (np.eye(ANSWERS)[int(leaf.actions[0])] - p[q]) / len(taught)
            z[q] += RATE * push
    return float(before), float(softmax(z)[:, 0].mean()), likeliest, float(np.mean(won))


def ttrl(seed: int) -> Measured:
    """pass@1 after training on majorities, against pass@1 before; it can rise no higher than majorities are right."""
    before, after, _, won = trained(seed)
    return Measured(after, before, acted={"reward/vote_share": won})
