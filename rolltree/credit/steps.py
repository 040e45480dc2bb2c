"""Steps: one row per model call, with the state it answered and what it led to.

A model call is a maximal chain of trained nodes in which no state is named: it ends at an environment node or at a
node with a `state_key`. Where a fork cut a call in two, each continuation is a call of its own and the shared head
takes the mean of what its continuations get.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rolltree.credit.advantage import CreditError
from rolltree.credit.backup import turns
from rolltree.credit.outcome import outcomes, step_rewards, where
from rolltree.credit.partition import By, ids
from rolltree.tree.table import Bools, Floats, Ints, Table

# Returns: what a step led to, along a tree.


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


@dataclass(frozen=True, slots=True)
class Steps:
    """Model calls with a live leaf below."""

    row: Ints
    """Row of the last node of each call."""
    state: Ints
    """Row of the node whose `state_key` names the state the call answered; -1 where none is above."""


def steps(table: Table) -> Steps:
    """The model calls of a table, in row order."""
    live = table.below(table.live.astype(np.float64)) > 0
    acts = table.trainable & (table.length > 0) & live
    goes_on = np.zeros(len(table.nodes), np.bool_)
    goes_on[table.parent[acts & (table.parent >= 0)]] = True
    goes_on &= ~named(table)
    row = np.flatnonzero(acts & ~goes_on)
    return Steps(row, state_nodes(table)[row])


def named(table: Table) -> Bools:
    """Nodes after which the environment is in a named state."""
    return np.fromiter((n.state_key is not None for n in table.nodes), np.bool_, len(table.nodes))


def state_nodes(table: Table) -> Ints:
    """Per node, the row of the nearest node strictly above with a `state_key`, or -1."""
    has = named(table)
    nearest = np.full(len(table.nodes), -1, np.int64)
    for level in table.levels[1:]:
        above = table.parent[level]
        nearest[level] = np.where(has[above], above, nearest[above])
    return nearest


def require_states(table: Table, steps: Steps) -> None:
    """Raise unless every step stands below a state key."""
    if (steps.state < 0).any():
        row = int(steps.row[steps.state < 0][0])
        raise CreditError(
            f"{where(table, row)} answers a state without a state_key; "
            "let the environment name its states, or use a credit without step groups"
        )


def state_ids(table: Table, by: By) -> Ints:
    """A number per node for (group, state_key); -1 without a key. States of different prompts never meet."""
    if by == "tree":
        owner: list[object] = list(range(len(table.trees)))
    elif by == "item":
        owner = [(t.task, t.item) if t.item else t.id for t in table.trees]
    else:
        owner = [None] * len(table.trees)
    keys = ((owner[t], n.state_key) for t, n in zip(table.tree, table.nodes, strict=True))
    return ids(None if key is None else (o, key) for o, key in keys)


def over_steps(table: Table, steps: Steps, values: Floats) -> Floats:
    """Per node, the value of its step; a head shared by several steps gets their mean, weighted by live leaves."""
    mass = table.below(table.live.astype(np.float64))
    out = np.zeros(len(table.nodes))
    out[steps.row] = values
    weight = np.zeros(len(table.nodes))
    weight[steps.row] = mass[steps.row]
    heads_of = table.trainable & ~named(table)
    for level in table.levels[:0:-1]:
        rows = level[(weight[level] > 0) & table.trainable[level]]
        rows = rows[heads_of[table.parent[rows]]]
        above = table.parent[rows]
        heads = np.unique(above)
        sums = np.bincount(above, weight[rows] * out[rows], len(out))
        total = np.bincount(above, weight[rows], len(out))
        out[heads] = sums[heads] / total[heads]
        weight[heads] = total[heads]
    return out
