"""Episodes as rectangles: model calls by (episode, turn), for recursions that run along turns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rolltree.credit.advantage import CreditError
from rolltree.credit.outcome import where
from rolltree.credit.returns import granted
from rolltree.credit.steps import steps
from rolltree.tree.table import Bools, Floats, Ints, Table


@dataclass(frozen=True, slots=True)
class Episodes:
    """One row per live leaf, one column per turn; `row` is -1 after an episode's end."""

    row: Ints
    """(E, T) row of the node of each turn."""
    valid: Bools
    """(E, T)"""
    reward: Floats
    """(E, T) what was granted from this turn to the next: step rewards, and the outcome at the last turn."""
    leaf: Ints
    """(E,) index into `Table.leaf`."""

    def fill(self, per_turn: Floats) -> Floats:
        """Values of the valid turns laid into the rectangle, 0 elsewhere."""
        out = np.zeros(self.valid.shape)
        out[self.valid] = per_turn
        return out


def episodes(table: Table, name: str, *, outcome: bool = True) -> Episodes:
    """The episodes of a forest whose model calls are not shared between leaves; `name` is who asks."""
    found = steps(table)
    mass = table.below(table.live.astype(np.float64))
    if (mass[found.row] > 1).any():
        row = int(found.row[mass[found.row] > 1][0])
        raise CreditError(
            f"{name} needs independent episodes, but {where(table, row)} is shared by several leaves; "
            "fork at the prompt only, or use a tree credit"
        )
    live = np.flatnonzero(table.live)
    at = np.full(len(table.leaf), -1, np.int64)
    at[live] = np.arange(len(live))
    # The live leaf below a call: with one live leaf below, the sum of live indices is its index.
    owner = np.rint(table.below(np.where(table.live, np.arange(len(table.leaf)), 0).astype(np.float64)))
    episode = at[owner[found.row].astype(np.int64)]
    order = np.lexsort((found.row, episode))
    rows, episode = found.row[order], episode[order]
    sizes = np.bincount(episode, minlength=len(live))
    turn = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    shape = (len(live), int(sizes.max(initial=0)))
    row = np.full(shape, -1, np.int64)
    row[episode, turn] = rows
    last = np.full(len(table.nodes), -1, np.int64)
    last[rows] = rows
    for level in table.levels[1:]:
        last[level] = np.where(last[level] < 0, last[table.parent[level]], last[level])
    earned = np.where(mass > 0, granted(table, outcome), 0.0)
    per_row = np.bincount(last[last >= 0], earned[last >= 0], minlength=len(table.nodes))
    return Episodes(row, row >= 0, np.where(row >= 0, per_row[row], 0.0), live)
