"""What training on one's own majority does (TTRL): tabular answers to questions, labels and credit by the real parts.

Each question's first answer is right and a little likelier than the others before training; on some of the questions
another one is likelier all the same, and there the majority is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rolltree.recipe.registry import load_recipe
from rolltree.recipe.ttrl import Ttrl
from rolltree.tree import Tree
from rolltree.tree.table import table
from studies.lab.claim import Measured

QUESTIONS, ANSWERS, STEPS, RATE, VOTES = 16, 5, 40, 2.0, Ttrl().votes
HEAD_START, SPREAD = 1.0, 1.0
"""Of the right answer's logit, and the deviation of every logit."""


def softmax(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Along the last axis."""
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@dataclass(frozen=True)
class AnyAnswer:
    """Calls one of the answers that a group gave right, whichever: labels that say nothing."""

    rng: np.random.Generator

    def __call__(self, tree: Tree, limit: int) -> None:
        """Label the leaves; `limit` is not used."""
        said = sorted({str(leaf.notes["answer"]) for leaf in tree.leaves()})
        label = said[int(self.rng.integers(len(said)))]
        for leaf in tree.leaves():
            leaf.scores["reward"] = float(leaf.notes["answer"] == label)


def questions(seed: int) -> NDArray[np.float64]:
    """Logits of the answers before training."""
    z = np.random.default_rng([2504, seed]).normal(0.0, SPREAD, (QUESTIONS, ANSWERS))
    z[:, 0] += HEAD_START
    return z


def trained(seed: int, *, voted: bool = True) -> tuple[float, int, int]:
    """pass@1 after training, rollouts of a question, and groups whose labels differed, so that they taught; labels are
    the recipe's majorities, or not `voted` any answer's."""
    rng, parts, z, groups = np.random.default_rng([2505, seed]), load_recipe("ttrl").build(), questions(seed), 0
    label, only = parts.shapers
    shapers = (label if voted else AnyAnswer(np.random.default_rng([2506, seed])), only)
    for _ in range(STEPS):
        p = softmax(z)
        for q in range(QUESTIONS):
            tree, said = Tree("t", [0]), rng.choice(ANSWERS, size=VOTES, p=p[q])
            for answer in said.tolist():
                leaf = tree.extend(tree.root, [answer], status="done", scores={"reward": float(answer == 0)})
                leaf.notes["answer"] = str(answer)
            for shape in shapers:
                shape(tree, 48)
            rows = table([tree])
            value = parts.credit(rows).leaf
            assert value is not None
            taught = [leaf for leaf, live in zip(tree.leaves(), rows.live.tolist(), strict=True) if live]
            worth = value[rows.live]
            groups += bool(np.any(worth))
            push = np.zeros(ANSWERS)
            for leaf, a in zip(taught, worth.tolist(), strict=True):
                push += a * (np.eye(ANSWERS)[int(leaf.actions[0])] - p[q]) / len(taught)
            z[q] += RATE * push
    return float(softmax(z)[:, 0].mean()), STEPS * VOTES, groups


def ttrl(seed: int) -> Measured:
    """pass@1 after training on majorities, against one vote of as many rollouts of each question before training: what
    the same rollouts say without any. The curve has pass@1 before, and after training on labels that say nothing."""
    p = softmax(questions(seed))
    after, rollouts, groups = trained(seed)
    rng = np.random.default_rng([2507, seed])
    vote = float(np.mean([rng.multinomial(rollouts, row).argmax() == 0 for row in p]))
    others = ([0.0, 1.0], [float(p[:, 0].mean()), trained(seed, voted=False)[0]])
    return Measured(after, vote, {"before, and after labels that say nothing": others},
                    {"groups that taught": float(groups)})  # fmt: skip
