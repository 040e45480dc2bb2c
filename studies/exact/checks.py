"""Recipes whose evidence is the noise of their gradient on an exact problem, against as much sampling without them."""

from __future__ import annotations

import numpy as np

from rolltree.credit.registry import load_credit
from rolltree.tree import Tree
from studies.exact.forest import Forks, sample
from studies.exact.measure import gradients, summarise
from studies.exact.problem import solve
from studies.exact.problems import PROBLEMS

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
