"""Noise of PORTool's gradient on its own trees, held against flat groups of as many calls."""

from __future__ import annotations

import numpy as np

from rolltree.compare.frozen import counted
from rolltree.control.ledger import Budget
from rolltree.recipe.registry import load_recipe
from rolltree.tree.table import Floats
from studies.exact.checks import TREES, calls, noise
from studies.exact.measure import gradients, summarise
from studies.exact.play import grown
from studies.exact.problem import solve
from studies.exact.problems import PROBLEMS
from studies.lab.claim import Measured


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
