"""Recipes whose evidence is the noise of their gradient on an exact problem, against as much sampling without them."""

from __future__ import annotations

import numpy as np

from rolltree.credit.registry import load_credit
from rolltree.lab.claim import Measured
from rolltree.tree import Tree
from rolltree.tree.table import Floats
from studies.exact.forest import Forks, sample
from studies.exact.measure import gradients, summarise
from studies.exact.problem import solve
from studies.exact.problems import PROBLEMS

TREES = 400


def noise(credit: str, group: int, forks: Forks, seed: int, problem: str = "tools") -> tuple[float, float]:
    """Standard deviation of one tree's gradient over its length, rescaled to the true size, and calls per tree."""
    made = PROBLEMS[problem]()
    solved = solve(made)
    forest = sample(made, solved, np.random.default_rng([41, seed]), trees=TREES, group=group, forks=forks)
    estimates = gradients(forest, load_credit(credit), made.policy, prompts=0)
    return summarise(estimates, solved.gradient).noise, calls(forest)


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
    """Noise of fork-relative credit on trees with two forks per first call, against GRPO at as many calls."""
    forked, used = noise("fork_relative", 8, "even", seed)
    return Measured(forked, at_equal_calls("grpo", used, seed))


def remax(seed: int) -> Measured:
    """Noise of one sampled rollout against a greedy one, and of two sampled ones against each other."""
    return Measured(noise("remax", 1, "flat", seed)[0], noise("rloo", 2, "flat", seed)[0])
