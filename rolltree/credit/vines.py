"""Vines in a table: rollouts that set out from a state some other rollout came through."""

from __future__ import annotations

import numpy as np

from rolltree.credit.advantage import CreditError
from rolltree.credit.outcome import where
from rolltree.credit.partition import ids
from rolltree.tree.table import Floats, Ints, Table


def vines(table: Table) -> Ints:
    """Per node, the row of the run with which the innermost vine at or above it began; -1 = on none."""
    born = np.fromiter((n.birth == "vine" for n in table.nodes), np.bool_, len(table.nodes))
    row = np.where(born, np.arange(len(table.nodes)), -1)
    for level in table.levels[1:]:
        row[level] = np.where(row[level] < 0, row[table.parent[level]], row[level])
    return row


def vine_states(table: Table, vine: Ints, *, pooled: bool = False) -> Ints:
    """Per node, a number of the state that its vine set out from; -1 where it is on none.

    States are nodes, which is prefixes; `pooled` takes those of a tree with the same state key for one.
    """
    start = np.where(vine >= 0, table.parent[vine], -1)
    if not pooled:
        return ids(None if s < 0 else int(s) for s in start)
    for s in np.unique(start[start >= 0]):
        if table.nodes[s].state_key is None:
            raise CreditError(
                f'{where(table, int(s))} has no state key, so vines cannot be grouped by state; group them by "vine"'
            )
    return ids(None if s < 0 else (int(table.tree[s]), table.nodes[s].state_key) for s in start)


def turns_since(table: Table, vine: Ints) -> Ints:
    """Per node, how often the environment answered between the start of its vine and the node itself."""
    env = np.fromiter((n.role == "env" for n in table.nodes), np.float64, len(table.nodes))
    answers = table.down(env)
    before = np.where(vine >= 0, answers[table.parent[vine]], 0.0)
    return np.rint(answers - before).astype(np.int64)


def own_mean(table: Table, leaf: Floats, vine: Ints) -> Floats:
    """Per node, the mean over the live leaves below it that are on the same vine, or like it on none; 0 without."""
    rows, leaves = table.pairs()
    own = table.live[leaves] & (vine[rows] == vine[table.leaf[leaves]])
    mass = np.bincount(rows[own], minlength=len(table.nodes))
    sums = np.bincount(rows[own], leaf[leaves[own]], minlength=len(table.nodes))
    return np.divide(sums, mass, out=np.zeros(len(mass)), where=mass > 0)
