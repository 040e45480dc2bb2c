"""A table as it was stored (`NAME.json`), judged again as one family: what pages and the README are written from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from rolltree.compare.stats import Asked, Corrected, Interval, corrected, judge, t_interval
from rolltree.compare.trace import LabError
from studies.tables import TABLES, TablePlan, base_of
from studies.unanswerable import lost

BETTER = ("holds", "claim excluded")


@dataclass(frozen=True, eq=False)
class StoredCell:
    """One row in one column."""

    label: str
    column: str
    values: Mapping[int, float]
    collapsed: int
    idle: bool
    """Whether its counter never moved in half of its runs or more."""
    costs: Mapping[str, float | None]
    test: Corrected | None = None
    """Against its base; None for the base itself."""
    lost: str = ""
    """Why nothing could be ahead of its base in a way that counts."""

    @property
    def mean(self) -> Interval:
        """Over seeds."""
        return t_interval(list(self.values.values()))

    @property
    def verdict(self) -> str:
        """Empty for what nothing is held against."""
        return "" if self.test is None else "void" if self.idle or self.lost else judge(self.test.effect)

    @property
    def said(self) -> str:
        """The verdict, with its reason where it is none."""
        return f"void: {self.lost or 'never acted'}" if self.verdict == "void" else self.verdict


@dataclass(frozen=True, slots=True)
class StoredTable:
    """All cells, in the table's order."""

    plan: TablePlan
    cells: tuple[StoredCell, ...]

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(dict.fromkeys(cell.column for cell in self.cells))

    @property
    def rows(self) -> list[str]:
        """Labels of the rows."""
        return list(dict.fromkeys(cell.label for cell in self.cells))

    @property
    def is_map(self) -> bool:
        """Whether its columns are pairs of conditions."""
        return len(self.plan.factors) > 1

    def at(self, label: str, column: str) -> StoredCell | None:
        """A cell, where it was run."""
        return next((c for c in self.cells if (c.label, c.column) == (label, column)), None)


def load(path: Path) -> StoredTable:
    """A stored table; its comparisons are one family."""
    if path.stem not in TABLES:
        raise LabError(f"{path} is no table of a study; those are {', '.join(TABLES)}")
    plan = TABLES[path.stem]
    try:
        raw = cast("dict[str, dict[str, Any]]", json.loads(path.read_text(encoding="utf-8")))
        found = [_cell(name, told) for name, told in raw.items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LabError(f"cannot read {path}: {error!r}; run `python -m studies.board {path.stem}` again") from error
    known = {row.label for row in plan.rows()}
    for cell in found:
        if cell.label not in known:
            raise LabError(f"{path}: the table {plan.name} has no row {cell.label!r} any more; run it again")
    by = {(c.column, c.label): c for c in found}
    bases = {c: by[c.column, base_of(plan, c.label, {x.label for x in found if x.column == c.column})] for c in found}
    pairs = [(c, base) for c, base in bases.items() if base is not c]
    asked = [Asked(tuple(c.values[s] - b.values[s] for s in sorted(c.values.keys() & b.values.keys())), pool="points")
             for c, b in pairs]  # fmt: skip
    tests = {(c.column, c.label): t for (c, _), t in zip(pairs, corrected(asked), strict=True)}
    why = {c: lost(base.collapsed, list(base.values.values())) for c, base in pairs}
    return StoredTable(plan, tuple(replace(c, test=tests.get((c.column, c.label)), lost=why.get(c, "")) for c in found))


def _cell(name: str, told: Mapping[str, Any]) -> StoredCell:
    column, _, label = name.rpartition(" / ")
    values = {int(seed): float(value) for seed, value in told["values"].items()}
    resting = told["acted"] is not None and told["acted"] == told["rest"]
    idle = bool(told.get("idle", resting))
    costs = {k: v for k, v in told.items() if "/" in k}
    return StoredCell(label, column, values, int(told["collapsed"]), idle, costs)
