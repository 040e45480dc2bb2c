"""What is known of a table's cells: the runs of each, what is compared with what, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rolltree.compare.contrast import measures
from rolltree.compare.curves import endpoint
from rolltree.compare.names import COSTS
from rolltree.compare.trace import Trace
from rolltree.compare.void import COLLAPSED
from rolltree.recipe.registry import counter_of
from studies.tables import TableArm, TablePlan, base_of, is_flat
from studies.unanswerable import idle, lost

SIMULATED = "time/simulated"
"""Seconds on the cluster of `studies.simulated`, for rollouts that share nothing."""


@dataclass(frozen=True, slots=True)
class BoardCell:
    """One row in one column."""

    row: TableArm
    column: str
    regime: str
    factor: float


@dataclass
class TableRuns:
    """What is known of a table's cells."""

    plan: TablePlan
    metric: dict[str, str]
    budget: dict[str, float]
    traces: dict[BoardCell, list[Trace]] = field(default_factory=dict[BoardCell, list[Trace]])
    simulated: dict[BoardCell, list[float]] = field(default_factory=dict[BoardCell, list[float]])
    """Simulated seconds of the runs whose lengths were kept."""

    def values(self, cell: BoardCell) -> dict[int, float]:
        """The judged number of each seed of a cell."""
        found = self.traces.get(cell, [])
        return dict(measures(found, self.metric[cell.column], self.budget[cell.column], "decoded").per_seed)

    def base(self, cell: BoardCell) -> BoardCell:
        """What a cell is held against (see `base_of`)."""
        column = {c.row.label: c for c in self.traces if c.column == cell.column}
        return column[base_of(self.plan, cell.row.label, column)]

    def differences(self, cell: BoardCell, base: BoardCell) -> list[float]:
        """By seed, over the seeds both have."""
        mine, theirs = self.values(cell), self.values(base)
        return [mine[s] - theirs[s] for s in sorted(mine.keys() & theirs.keys())]

    def lost(self, cell: BoardCell) -> str:
        """Why nothing held against a cell could be ahead of it in a way that counts; empty where it could."""
        return lost(sum(map(fell, self.traces[cell])), list(self.values(cell).values()))

    def numbers(self, cell: BoardCell) -> dict[str, Any]:
        """Collapses, the counter, and all costs, means over seeds."""
        # A flat control is there not to act, and a row that takes a recipe apart may lack what its counter counts.
        control = is_flat(cell.row) or cell.row.base
        traces, counter = self.traces[cell], None if control else counter_of(cell.row.recipe)
        acted = [v for t in traces if counter is not None and (v := t.mean(counter.metric)) is not None]
        spent = {n: [v for t in traces if (v := t.total(n)) is not None] for n in COSTS}
        spent[SIMULATED] = self.simulated.get(cell, [])
        return {
            "collapsed": float(sum(map(fell, traces))), "acted": float(np.mean(acted)) if acted else None,
            "rest": 0.0 if counter is None else counter.rest,
            "idle": counter is not None and idle(acted, counter.rest),
        } | {n: float(np.mean(v)) if v else None for n, v in spent.items()}  # fmt: skip


def fell(trace: Trace) -> bool:
    """Whether a run collapsed: it ends below half of where it began."""
    return bool(endpoint(trace, "pass@1") < COLLAPSED * trace.curve("pass@1")[1][0])
