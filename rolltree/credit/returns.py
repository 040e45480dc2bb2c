"""Returns: what a step led to, along a tree."""

from __future__ import annotations

import numpy as np

from rolltree.credit.advantage import CreditError
from rolltree.credit.backup import turns
from rolltree.credit.outcome import outcomes, step_rewards
from rolltree.tree.table import Floats, Table


def granted(table: Table, outcome: bool = True, steps: bool = True) -> Floats:
    """Reward earned at each node: its step reward, and at live leaves the outcome; either can be left out."""
    earned = step_rewards(table) if steps else np.zeros(len(table.nodes))
    if outcome:
        earned[table.leaf] += outcomes(table)
    return earned


def check_discount(gamma: float) -> None:
    """Refuse a discount that is none."""
    if not 0 <= gamma <= 1:
        raise CreditError(f"gamma must lie in [0, 1], got {gamma}")


def to_go(table: Table, earned: Floats, gamma: float) -> Floats:
    """Discounted return from each node on: γ per turn, mean over the live leaves below; 0 where there is none.

    On a path without forks this is the plain sum of γ^(u − t) r_u. It is summed from the leaves up, never as a
    difference of running sums, so small γ and long episodes lose no digits.
    """
    check_discount(gamma)
    mass = table.below(table.live.astype(np.float64))
    turn = turns(table)
    value = np.where(mass > 0, earned, 0.0)
    for level in table.levels[:0:-1]:
        rows = level[mass[level] > 0]
        above = table.parent[rows]
        grown = value[rows] * gamma ** (turn[rows] - turn[above]) * mass[rows] / mass[above]
        np.add.at(value, above, grown)
    return value
