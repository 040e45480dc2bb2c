"""When to call a tool: a policy with one bit for each kind of question, rewarded and credited by the real parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rolltree.control.arms import FORBIDDEN, FORCED, FREE, MODE
from rolltree.credit.advantage import Credit
from rolltree.credit.registry import load_credit
from rolltree.filter.modes import Adaptive, Necessity, calls
from rolltree.filter.overlong import Shaper
from rolltree.lab.claim import Measured
from rolltree.tree import Tree
from rolltree.tree.table import table

STEPS, RATE, FORCE, FREELY = 300, 0.5, 4, 8
KINDS = ((0.9, 0.1), (0.3, 0.8), (0.8, 0.8))
"""Success with the tool and without, of questions that need it, that it harms, and that it does nothing for."""
DIFFICULTY = tuple((0.9, alone) for alone in (0.05, 0.3, 0.6, 0.95))
"""A tool that nearly always works, and answers at once that work ever more often."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Every call costs the same: what does as well here, where its price is known."""

    cost: float

    def __call__(self, tree: Tree, limit: int) -> None:
        """Take it off; `limit` is not used."""
        for leaf in tree.leaves():
            leaf.scores["reward"] -= self.cost * (calls(tree, leaf) > 0)


def trained(seed: int, kinds: Sequence[tuple[float, float]], shape: Shaper | None, credit: Credit) -> list[float]:
    """Chance to call, by kind of question, after training on one prompt of each kind a step."""
    rng, logit = np.random.default_rng([101, seed]), np.zeros(len(kinds))
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
            value = credit(table([tree])).leaf
            assert value is not None
            free = zip(value[-FREELY:].tolist(), called[-FREELY:], strict=True)
            push = [v * (call - chance[kind]) for v, call in free]
            logit[kind] += RATE / FREELY * sum(push)
    return (1 / (1 + np.exp(-logit))).tolist()


def adaptive_pixel(seed: int) -> Measured:
    """Chance to call where the tool helps and not to where it harms or does nothing, mean over the three kinds."""
    ours = trained(seed, KINDS, Necessity(), load_credit("arm_relative"))
    outcome = trained(seed, KINDS, None, load_credit("arm_relative"))
    right, alone = (float(np.mean([c[0], 1 - c[1], 1 - c[2]])) for c in (ours, outcome))
    return Measured(right, alone)


def a2fm(seed: int) -> Measured:
    """Chance of the mode that is right: at once where that works in .95, with the tool in .05 and .3 of the cases."""
    ours = trained(seed, DIFFICULTY, Adaptive(), load_credit("grpo"))
    outcome = trained(seed, DIFFICULTY, None, load_credit("grpo"))
    right, alone = (float(np.mean([c[0], c[1], 1 - c[3]])) for c in (ours, outcome))
    return Measured(right, alone)
