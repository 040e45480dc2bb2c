"""Recipes whose evidence is the noise of their gradient on an exact problem, against as much sampling without them."""

from __future__ import annotations

import numpy as np

from rolltree.compare.frozen import counted
from rolltree.control.ledger import Budget
from rolltree.credit.registry import load_credit
from rolltree.recipe.registry import load_recipe
from rolltree.tree import Tree
from rolltree.tree.table import Floats
from studies.exact.forest import Forks, sample
from studies.exact.measure import gradients, summarise
from studies.exact.play import grown
from studies.exact.problem import solve
from studies.exact.problems import PROBLEMS
from studies.lab.claim import Measured

TREES = 400


def noise(credit: str, group: int, forks: Forks, seed: int, problem: str = "tools") -> tuple[float, float]:
    """Standard deviation of one tree's gradient over its length, rescaled to the true size, and calls per tree."""
    forest = sampled(group, forks, seed, problem)
    return noise_of(credit, forest, problem), calls(forest)


def sampled(group: int, forks: Forks, seed: int, problem: str = "tools") -> list[Tree]:
    """Trees of a problem."""
    made = PROBLEMS[problem]()
    return sample(made, solve(made), np.random.default_rng([41, seed]), trees=TREES, group=group, forks=forks)


def noise_of(credit: str, forest: list[Tree], problem: str = "tools") -> float:
    """Standard deviation of one tree's gradient over its length, rescaled to the true size."""
    made = PROBLEMS[problem]()
    estimates = gradients(forest, load_credit(credit), made.policy, prompts=0)
    return summarise(estimates, solve(made).gradient).noise


def calls(forest: list[Tree]) -> float:
    """Actions sampled per tree, shared ones once."""
    return sum(len(node) for tree in forest for node in tree if node.trainable) / len(forest)


def at_equal_calls(credit: str, calls_wanted: float, seed: int) -> float:
    """Noise of independent rollouts that make so many calls, by a line through its square against 1/calls."""
    found = [noise(credit, group, "flat", seed) for group in (6, 10)]
    x = np.array([1 / used for _, used in found])
    y: Floats = np.array([n**2 for n, _ in found])
    slope, start = np.polyfit(x, y, 1)
    return float(np.sqrt(max(start + slope / calls_wanted, 0.0)))


def portool(seed: int) -> Measured:
    """Noise of the recipe's gradient on trees of its own generator, against GRPO at as many calls."""
    parts = load_recipe("portool", leaves=8).build()
    made = PROBLEMS["tools"]()
    forest = grown(made, parts.strategy, seed, TREES)
    for tree in forest:
        for shape in parts.shapers:
            shape(tree, 0)
    found = summarise(gradients(forest, parts.credit, made.policy, prompts=0), solve(made).gradient)
    acted = counted("portool", forest, Budget())
    return Measured(found.noise, at_equal_calls("grpo", calls(forest), seed), acted=acted)


def remax(seed: int) -> Measured:
    """Noise of one sampled rollout against a greedy one, and of two sampled ones against each other.

    On the tree, where the greedy way earns; on the chain of tool calls it never does, and nothing is taken off.
    """
    forest = sampled(1, "flat", seed, "tree")
    earned = sum(tree.root.scores["greedy_reward"] != 0 for tree in forest)
    plain = noise("rloo", 2, "flat", seed, "tree")[0]
    return Measured(noise_of("remax", forest, "tree"), plain, acted={"greedy rollouts that earned": float(earned)})
