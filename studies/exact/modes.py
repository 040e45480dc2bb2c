"""When to call a tool: a policy with one bit for each kind of question, rewarded and credited by the real parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rolltree.control.arms import FORBIDDEN, FORCED, FREE, MODE, THOUGHT
from rolltree.credit.advantage import Credit
from rolltree.filter.lengths import Shaper
from rolltree.filter.modes import calls
from rolltree.recipe.registry import load_recipe
from rolltree.tree import Tree
from rolltree.tree.table import table
from studies.lab.claim import Measured

STEPS, RATE, FORCE, FREELY = 300, 0.5, 4, 8
KINDS = ((0.9, 0.1), (0.3, 0.8), (0.8, 0.8))
"""Success with the tool and without, of questions that need it, that it harms, and that it does nothing for."""
DIFFICULTY = tuple((alone, (1 + alone) / 2, 0.95) for alone in (0.05, 0.3, 0.6, 0.95))
"""Answers at once that work ever more often, thought that errs half as much, and a tool that nearly always works."""

BY_REWARD = "by reward: own, at a fixed cost, outcome alone"


@dataclass(frozen=True, slots=True)
class Cost:
    """Every call costs the same, and so does thought: the plain way to say that neither is free."""

    cost: float = 0.2

    def __call__(self, tree: Tree, limit: int) -> None:
        """Take it off; `limit` is not used."""
        for leaf in tree.leaves():
            leaf.scores["reward"] -= self.cost * (calls(tree, leaf) > 0 or leaf.scores.get("mode", 0.0) > 0)


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


def adaptive_pixel(seed: int) -> Measured:
    """Chance to call where the tool helps and not to where it harms or does nothing, mean over the three kinds: rewards
    by what forced arms show, against the same arms at a fixed cost of a call. The curve has the outcome alone too."""
    parts = load_recipe("adaptive_pixel").build()
    shapers = (parts.shapers[0], Cost(), None)
    found = [trained(seed, KINDS, shape, parts.credit) for shape in shapers]
    ours, priced, outcome = (float(np.mean([c[0], 1 - c[1], 1 - c[2]])) for c, _ in found)
    acted = {"free rollouts paid for leaving a tool that makes no difference": float(found[0][1])}
    return Measured(ours, priced, {BY_REWARD: ([0.0, 1.0, 2.0], [ours, priced, outcome])}, acted)


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
