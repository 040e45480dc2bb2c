"""When to call a tool, with forced and forbidden rollouts, held against a fixed cost of calls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rolltree.control.arms import FORBIDDEN, FORCED, FREE, MODE
from rolltree.credit.advantage import Credit
from rolltree.filter.lengths import Shaper
from rolltree.recipe.registry import load_recipe
from rolltree.tree import Tree
from rolltree.tree.table import table
from studies.exact.modes import BY_REWARD, FORCE, FREELY, RATE, STEPS, Cost
from studies.lab.claim import Measured

KINDS = ((0.9, 0.1), (0.3, 0.8), (0.8, 0.8))
"""Success with the tool and without, of questions that need it, that it harms, and that it does nothing for."""


def trained(
    seed: int, kinds: Sequence[tuple[float, float]], shape: Shaper | None, credit: Credit
) -> tuple[list[float], int]:
    """Chance to call, by kind of question, after training on one prompt of each kind a step, and free rollouts that
    were paid for leaving a tool that makes no difference."""
    rng, logit, paid = np.random.default_rng([101, seed]), np.zeros(len(kinds)), 0
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-logit))
        for kind, (with_tool, without) in enumerate(kinds):
            tree, called = Tree("t", [0]), list[bool]()
            for mode in [FORCED] * FORCE + [FORBIDDEN] * FORCE + [FREE] * FREELY:
                call = mode == FORCED or (mode == FREE and bool(rng.random() < chance[kind]))
                right = float(rng.random() < (with_tool if call else without))
                here = tree.extend(tree.root, [int(call)], status="done")
                if call:
                    here = tree.extend(tree.extend(here, [2], role="env", status="done"), [3], status="done")
                here.finish, here.scores = "stop", {"reward": right, MODE: mode}
                called.append(call)
            if shape is not None:
                shape(tree, 48)
                if tree.root.scores.get("tools_help") == 0:
                    free = zip(tree.leaves()[-FREELY:], called[-FREELY:], strict=True)
                    paid += sum(leaf.scores["outcome"] > 0 and not call for leaf, call in free)
            value = credit(table([tree])).leaf
            assert value is not None
            free = zip(value[-FREELY:].tolist(), called[-FREELY:], strict=True)
            push = [v * (call - chance[kind]) for v, call in free]
            logit[kind] += RATE / FREELY * sum(push)
    return (1 / (1 + np.exp(-logit))).tolist(), paid


def adaptive_pixel(seed: int) -> Measured:
    """Chance to call where the tool helps and not to where it harms or does nothing, mean over the three kinds: rewards
    by what forced arms show, against the same arms at a fixed cost of a call. The curve has the outcome alone too."""
    parts = load_recipe("adaptive_pixel").build()
    shapers = (parts.shapers[0], Cost(), None)
    found = [trained(seed, KINDS, shape, parts.credit) for shape in shapers]
    ours, priced, outcome = (float(np.mean([c[0], 1 - c[1], 1 - c[2]])) for c, _ in found)
    acted = {"free rollouts paid for leaving a tool that makes no difference": float(found[0][1])}
    return Measured(ours, priced, {BY_REWARD: ([0.0, 1.0, 2.0], [ours, priced, outcome])}, acted)
