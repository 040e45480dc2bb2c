"""Few wide groups or many narrow ones of as many rollouts: what a policy over many answers learns (BroRL)."""

from __future__ import annotations

import numpy as np

from rolltree.filter.groups import sift
from rolltree.recipe.recipe import Parts
from rolltree.recipe.registry import load_recipe
from rolltree.tree import Tree
from rolltree.tree.table import Floats, table
from rolltree_papers.brorl import BroRl
from studies.exact.bandit import softmax
from studies.lab.claim import Measured

PROMPTS, ANSWERS, RIGHT = 32, 300, 3
"""Prompts of a step, answers there are, and how many of them are right: where more are, every width learns all."""
ROLLOUTS, USUAL = 256, 16
"""Rollouts of a prompt in all, and how wide groups usually are: the paper's 16."""
RATES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
"""Step sizes that each width may choose from, as a wide group bears a larger one."""


def begun(seed: int) -> Floats:
    """Random logits N(0, 2²)."""
    return np.random.default_rng([31, seed]).normal(0, 2, (PROMPTS, ANSWERS))


def step(logits: Floats, parts: Parts, group: int, rng: np.random.Generator) -> tuple[Floats, float]:
    """The sampled gradient of one step with a recipe's filters and credit, a mean over a group's rollouts; and how many
    answers of a prompt were seen."""
    policy, trees, seen = softmax(logits), list[Tree](), list[int]()
    for p, row in enumerate(policy):
        tree, said = Tree(f"p{p}", [0]), rng.choice(ANSWERS, group, p=row).tolist()
        for answer in said:
            tree.extend(0, [answer], status="done", scores={"reward": float(answer < RIGHT)})
        trees.append(tree)
        seen.append(len(set(said)))
    kept, _ = sift(trees, parts.filters)
    push = np.zeros_like(logits)
    if kept:
        value = parts.credit(table(kept)).leaf
        assert value is not None
        where = [(int(tree.id[1:]), int(leaf.actions[0])) for tree in kept for leaf in tree.leaves()]
        for (p, answer), worth in zip(where, value.tolist(), strict=True):
            push[p, answer] += worth / group
    return push - push.sum(1, keepdims=True) * policy, float(np.mean(seen))


def learned(group: int, rate: float, seed: int) -> tuple[Floats, float]:
    """Mass of the right answers of each prompt after so many rollouts, and how many answers the first step saw."""
    parts, rng, logits, seen = (
        load_recipe("brorl").build(),
        np.random.default_rng([61, seed]),
        begun(seed),
        list[float](),
    )
    for _ in range(ROLLOUTS // group):
        push, answers = step(logits, parts, group, rng)
        logits += rate * push
        seen.append(answers)
    return softmax(logits)[:, :RIGHT].sum(1), seen[0]


def brorl(seed: int) -> Measured:
    """Mass of right answers after 256 rollouts a prompt in the recipe's groups against groups of 16; each width at
    the best of the same step sizes. The curves have all of them, and the share of prompts that ended below the start.
    """
    before = softmax(begun(seed))[:, :RIGHT].sum(1)
    curves, best, seen = dict[str, tuple[list[float], list[float]]](), list[float](), list[float]()
    for group in (BroRl().group, USUAL):
        ends = [learned(group, rate, seed) for rate in RATES]
        mass, fell = [float(end.mean()) for end, _ in ends], [float((end < before).mean()) for end, _ in ends]
        curves[f"mass, {group} rollouts, by rate"] = (list(RATES), mass)
        curves[f"prompts below the start, {group} rollouts, by rate"] = (list(RATES), fell)
        best.append(max(mass))
        seen.append(ends[0][1])
    return Measured(best[0], best[1], curves, {"answers seen beyond those of 16": seen[0] - seen[1]})
