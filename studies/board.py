"""The tables of the README: `python -m studies.board stability` (schedules, stale-parts, credits-long, credits-noisy,
trees-fresh, trees-long, trees-noisy, real).

Runs are made seed by seed over all cells, so what is finished is paired at any time; after each seed the table is
written again. `--plan` says how many runs there are and what they cost. Interrupted, the same command goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import tyro

from rolltree.compare.arms import arms
from rolltree.compare.compare import differing
from rolltree.compare.regimes import Calibrated, calibrated, regime
from rolltree.compare.runner import Runner, Spec
from rolltree.compare.trace import Trace
from rolltree.errors import unknown
from studies.again import take_over
from studies.command import run_study
from studies.lab.kept import KEPT
from studies.shelf_runs import Priced, bill, make, price
from studies.simulated import simulated
from studies.study_shelf import StudyShelf
from studies.table_page import write
from studies.table_runs import SIMULATED, BoardCell, TableRuns
from studies.tables import TABLES, TablePlan, base_of


@dataclass(frozen=True)
class BoardSettings:
    """Which table, and how much of it."""

    name: tyro.conf.Positional[str]
    """stability, stale-parts, schedules, credits-long, credits-noisy, trees-fresh, trees-long, trees-noisy or real."""
    plan: bool = False
    """Say how many runs there are and what is left to pay, and stop."""
    seeds: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Seeds of each cell; the table's own when left out, and then more of the baseline."""
    first_seed: int = 0
    """Seeds are this one and the following."""
    rows: tuple[str, ...] = ()
    """Only these rows (the baseline always stays)."""
    regimes: tuple[str, ...] = ()
    """Only these columns."""
    budget: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Decoded tokens of a run; the regime's own when left out."""
    lr: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = None
    """A rate instead of the calibrated one, for a try."""
    updates: int = 4
    """Updates of a step that go with --lr."""
    end_items: int = 256
    """Held-out items of the first and the last evaluation."""
    set: tuple[str, ...] = ()
    """More knobs for all runs."""
    out: Path = Path("runs/studies")
    """Folder for NAME.md and NAME.json."""
    cache: Path = Path("runs/cache")
    """Finished runs, found again by their content."""
    kept: Path = KEPT
    """The runs that the repository keeps."""
    again: bool = False
    """Repeat one of each kind of run that is kept from other code, and take the others over where it is the same."""
    threads: int = 1
    """Threads of processor work."""


def cells(settings: BoardSettings, plan: TablePlan) -> list[BoardCell]:
    """All cells asked for, column by column."""
    known = [row.label for row in plan.rows()]
    for name in settings.rows:
        if name not in known:
            raise unknown("row", name, known)
    rows = [r for i, r in enumerate(plan.rows()) if i == 0 or not settings.rows or r.label in settings.rows]
    columns = [(name, factor) for name in settings.regimes or plan.regimes for factor in plan.factors]
    return [
        BoardCell(row, f"{name}, rate × {factor:g}" if len(plan.factors) > 1 else name, name, factor)
        for name, factor in columns for row in rows
    ]  # fmt: skip


def spec_of(cell: BoardCell, seed: int, settings: BoardSettings, plan: TablePlan, rate: Calibrated) -> Spec:
    """A run of a cell: the regime's knobs, the calibrated rate, the table's knobs, the row's own, what was asked."""
    on = regime(cell.regime)
    knobs = [*on.settings, *rate.settings(cell.factor), *plan.settings, *cell.row.knobs, *settings.set]
    arm = replace(arms([cell.row.recipe], knobs)[0], label=cell.row.label)
    return Spec(arm, seed, on.conditions(settings.budget, settings.end_items))


def priced(settings: BoardSettings, plan: TablePlan) -> list[tuple[BoardCell, Priced]]:
    """The whole plan, seed by seed; where all rows have theirs, more seeds of the baselines, which all rows share."""
    of = cells(settings, plan)
    names = {cell.regime for cell in of}
    rates = {
        name: Calibrated(settings.lr, settings.updates) if settings.lr is not None
        else calibrated(name) if not settings.plan or has_calibration(name) else Calibrated(1.25e-4, 4)
        for name in names
    }  # fmt: skip
    out: list[tuple[BoardCell, Priced]] = []
    seeds, shared = settings.seeds or plan.seeds, settings.seeds or plan.baseline_seeds
    for seed in range(settings.first_seed, settings.first_seed + max(seeds, shared)):
        more = seed >= settings.first_seed + seeds
        for cell in (cell for cell in of if not more or cell.row == plan.rows()[0]):
            spec = spec_of(cell, seed, settings, plan, rates[cell.regime])
            on = regime(cell.regime)
            out.append((cell, price(spec, on.seconds * spec.conditions.budget / on.budget)))
    return out


def has_calibration(name: str) -> bool:
    """Whether a rate is known; a plan may be priced without one."""
    from rolltree.compare.regimes import CALIBRATED

    return (CALIBRATED / f"{name}.json").is_file()


def main(settings: BoardSettings, runner: Runner | None = None) -> TableRuns | None:
    """Make what is missing and write the table; None for a plan alone."""
    torch.set_num_threads(settings.threads)
    if settings.name not in TABLES:
        raise unknown("table", settings.name, TABLES)
    if runner is None:
        from rolltree.compare.train_runner import TrainRunner

        runner = TrainRunner()
    plan, shelf = TABLES[settings.name], StudyShelf(settings.cache, runner, kept=settings.kept)
    whole = priced(settings, plan)
    print(f"{plan.name}: {bill([p for _, p in whole], shelf)}", flush=True)
    if settings.plan:
        return None
    if settings.again:
        take_over([p.spec for _, p in whole], shelf, lambda words: print(words, flush=True))
    cell_of = {p.spec: cell for cell, p in whole}
    found = TableRuns(
        plan, {c.column: regime(c.regime).metric for c, _ in whole},
        {c.column: p.spec.conditions.budget for c, p in whole},
    )  # fmt: skip
    apart = _apart(plan, {cell.row.label: p.spec for cell, p in whole[: len(plan.rows())]}, runner)
    last = set({p.spec.seed: p.spec for _, p in whole}.values())

    def kept(trace: Trace, spec: Spec) -> None:
        found.traces.setdefault(cell_of[spec], []).append(trace)
        if (took := trace.total(SIMULATED) or simulated(trace, spec, runner)) is not None:
            found.simulated.setdefault(cell_of[spec], []).append(took)
        if spec in last:  # a seed is whole in every cell
            write(found, settings.out, apart)

    make([p for _, p in whole], shelf, kept, lambda words: print(words, flush=True))
    return found


def apart_of(plan: TablePlan, runner: Runner) -> dict[str, str]:
    """By row, in the table's first column, what it has that the row it is held against has not."""
    whole = priced(BoardSettings(plan.name, seeds=1), plan)[: len(plan.rows())]
    return _apart(plan, {cell.row.label: p.spec for cell, p in whole}, runner)


def _apart(plan: TablePlan, rows: Mapping[str, Spec], runner: Runner) -> dict[str, str]:
    """What each row has that the row it is held against has not."""
    out: dict[str, str] = {}
    for label, spec in rows.items():
        base = base_of(plan, label, set(rows))
        if base != label:
            for _, words in differing([rows[base].arm, spec.arm], spec.conditions, runner):
                out[label] = words
    return out


if __name__ == "__main__":
    raise SystemExit(run_study("board", BoardSettings, main, __doc__))
