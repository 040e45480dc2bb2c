"""Whether to answer at once, to think or to call a tool, held against a fixed cost of both."""

from __future__ import annotations

import numpy as np

from rolltree.control.arms import FORBIDDEN, FORCED, FREE, MODE, THOUGHT
from rolltree.credit.advantage import Credit
from rolltree.filter.lengths import Shaper
from rolltree.recipe.registry import load_recipe
from rolltree.tree import Tree
from rolltree.tree.table import table
from studies.exact.modes import BY_REWARD, FORCE, FREELY, RATE, STEPS, Cost
from studies.lab.claim import Measured

DIFFICULTY = tuple((alone, (1 + alone) / 2, 0.95) for alone in (0.05, 0.3, 0.6, 0.95))
"""Answers at once that work ever more often, thought that errs half as much, and a tool that nearly always works."""


def routed(seed: int, shape: Shaper | None, credit: Credit) -> tuple[list[float], int]:
    """Chance of an answer at once, by kind of question, after training the tag on the free rollouts, and rollouts
    that earned less because answers at once succeed."""
    rng, logits, shaped = np.random.default_rng([132, seed]), np.zeros((len(DIFFICULTY), 3)), 0
    forced = [(mode, tag) for tag, mode in enumerate((FORBIDDEN, THOUGHT, FORCED)) for _ in range(FORCE)]
    for _ in range(STEPS):
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        for kind, works in enumerate(DIFFICULTY):
            tree, tags = Tree("t", [0]), [*forced, *((FREE, int(rng.choice(3, p=p[kind]))) for _ in range(FREELY))]
            for mode, tag in tags:
                here = tree.extend(tree.root, [tag], status="done")
                if tag == 2:
                    here = tree.extend(tree.extend(here, [3], role="env", status="done"), [4], status="done")
                here.finish = "stop"
                here.scores = {"reward": float(rng.random() < works[tag]), MODE: mode, "mode": float(tag)}
            if shape is not None:
                shape(tree, 48)
                now = [leaf.scores for leaf in tree.leaves()]
                shaped += sum(scores["reward"] < scores.get("outcome", scores["reward"]) for scores in now)
            value = credit(table([tree])).leaf
            assert value is not None
            for (_, tag), worth in list(zip(tags, value.tolist(), strict=True))[-FREELY:]:
                logits[kind] += RATE / FREELY * worth * (np.eye(3)[tag] - p[kind])
    return (np.exp(logits) / np.exp(logits).sum(1, keepdims=True))[:, 0].tolist(), shaped


def a2fm(seed: int) -> Measured:
    """Chance of the mode that is right: at once where that works in .95, anything else in .05 and .3 of the cases.

    Rewards by how often answers at once succeed, against the same arms at a fixed cost of whatever is not at once; the
    curve has the outcome alone too.
    """
    parts = load_recipe("a2fm").build()
    found = [routed(seed, shape, parts.credit) for shape in (parts.shapers[0], Cost(), None)]
    ours, priced, outcome = (float(np.mean([1 - c[0], 1 - c[1], c[3]])) for c, _ in found)
    acted = {"reward/reshaped": float(found[0][1])}
    return Measured(ours, priced, {BY_REWARD: ([0.0, 1.0, 2.0], [ours, priced, outcome])}, acted)
