"""The tables of the README: `python -m studies.board stability` (credits, trees-fresh, trees).

Runs are made seed by seed over all cells, so what is finished is paired at any time; after each seed the table is
written again. `--plan` says how many runs there are and what they cost. Interrupted, the same command goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro

from rolltree.errors import unknown
from rolltree.lab.arms import arms
from rolltree.lab.compare import differing
from rolltree.lab.contrast import measures
from rolltree.lab.curves import endpoint
from rolltree.lab.names import COSTS
from rolltree.lab.runner import Runner, Shelf, Spec
from rolltree.lab.stats import Asked, Corrected, corrected, judge, rule_table
from rolltree.lab.trace import Trace, write_json
from rolltree.lab.void import COLLAPSED
from rolltree.recipe.registry import counter_of
from studies.command import run_study
from studies.regime import Calibrated, calibrated, regime
from studies.shelf_runs import Priced, bill, make, price
from studies.tables import TABLES, TableArm, TablePlan, flat_label, is_flat


@dataclass(frozen=True)
class BoardSettings:
    """Which table, and how much of it."""

    name: tyro.conf.Positional[str]
    """stability, credits, trees-fresh or trees."""
    plan: bool = False
    """Say how many runs there are and what is left to pay, and stop."""
    seeds: int | None = None
    """Seeds of each cell; the table's own when left out."""
    first_seed: int = 0
    """Seeds are this one and the following."""
    rows: tuple[str, ...] = ()
    """Only these rows (the baseline always stays)."""
    regimes: tuple[str, ...] = ()
    """Only these columns."""
    budget: int | None = None
    """Decoded tokens of a run; the regime's own when left out."""
    lr: float | None = None
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
    threads: int = 1
    """Threads of processor work."""


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

    def values(self, cell: BoardCell) -> dict[int, float]:
        """The judged number of each seed of a cell."""
        found = self.traces.get(cell, [])
        return dict(measures(found, self.metric[cell.column], self.budget[cell.column], "decoded").per_seed)


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
    """The whole plan, seed by seed."""
    of = cells(settings, plan)
    names = {cell.regime for cell in of}
    rates = {
        name: Calibrated(settings.lr, settings.updates) if settings.lr is not None
        else calibrated(name) if not settings.plan or has_calibration(name) else Calibrated(1.25e-4, 4)
        for name in names
    }  # fmt: skip
    out: list[tuple[BoardCell, Priced]] = []
    for seed in range(settings.first_seed, settings.first_seed + (settings.seeds or plan.seeds)):
        for cell in of:
            spec = spec_of(cell, seed, settings, plan, rates[cell.regime])
            on = regime(cell.regime)
            out.append((cell, price(spec, on.seconds * spec.conditions.budget / on.budget)))
    return out


def has_calibration(name: str) -> bool:
    """Whether a rate is known; a plan may be priced without one."""
    from studies.regime import CALIBRATED

    return (CALIBRATED / f"{name}.json").is_file()


def main(settings: BoardSettings, runner: Runner | None = None) -> TableRuns | None:
    """Make what is missing and write the table; None for a plan alone."""
    torch.set_num_threads(settings.threads)
    if settings.name not in TABLES:
        raise unknown("table", settings.name, TABLES)
    if runner is None:
        from rolltree.lab.train_runner import TrainRunner

        runner = TrainRunner()
    plan, shelf = TABLES[settings.name], Shelf(settings.cache, runner)
    whole = priced(settings, plan)
    print(f"{plan.name}: {bill([p for _, p in whole], shelf)}", flush=True)
    if settings.plan:
        return None
    cell_of = {p.spec: cell for cell, p in whole}
    found = TableRuns(
        plan, {c.column: regime(c.regime).metric for c, _ in whole},
        {c.column: p.spec.conditions.budget for c, p in whole},
    )  # fmt: skip
    apart = differing([p.spec.arm for _, p in whole[: len(plan.rows())]], whole[0][1].spec.conditions, runner)
    last = {p.spec for c, p in whole if c == whole[-1][0]}

    def kept(trace: Trace, spec: Spec) -> None:
        found.traces.setdefault(cell_of[spec], []).append(trace)
        if spec in last:  # a seed is whole in every cell
            write(found, settings.out, dict(apart))

    make([p for _, p in whole], shelf, kept, lambda words: print(words, flush=True))
    return found


def write(found: TableRuns, out: Path, apart: Mapping[str, str]) -> None:
    """The table as a page, and its numbers."""
    of = list(found.traces)
    pairs = [(cell, base) for cell in of if (base := _base(found, cell)) != cell]
    asked = [Asked(tuple(_differences(found, a, b)), pool="points") for a, b in pairs]
    judged = dict(zip((a for a, _ in pairs), corrected(asked), strict=True))
    lines = [f"# {found.plan.title}\n", _lead(found, len(pairs)), rule_table()]
    for column in dict.fromkeys(cell.column for cell in of):
        mine = [cell for cell in of if cell.column == column]
        lines += [f"\n## {column}\n", regime(mine[0].regime).about.capitalize() + ".\n", _table(found, mine, judged)]
    if apart:
        lines += ["\n## Where a difference could come from\n", *(f"- {row}: {words}" for row, words in apart.items())]
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{found.plan.name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_json(out / f"{found.plan.name}.json", {
        f"{cell.column} / {cell.row.label}": {"values": {str(s): v for s, v in found.values(cell).items()}}
        | _numbers(found, cell) for cell in of
    })  # fmt: skip


def _base(found: TableRuns, cell: BoardCell) -> BoardCell:
    """What a cell is held against: a tree its flat control where that was run, all else the first row."""
    column = {c.row.label: c for c in found.traces if c.column == cell.column}
    own = column.get(flat_label(cell.row)) if cell.row.flat else None
    return own or column[found.plan.rows()[0].label]


def _differences(found: TableRuns, cell: BoardCell, base: BoardCell) -> list[float]:
    mine, theirs = found.values(cell), found.values(base)
    return [mine[s] - theirs[s] for s in sorted(mine.keys() & theirs.keys())]


def _lead(found: TableRuns, contrasts: int) -> str:
    return (
        f"Written by `python -m studies.board {found.plan.name}`. Rate and updates are those calibrated for the "
        f"baseline of each regime, the same for every row. {contrasts} comparisons are one family: the ends of their "
        "intervals stand where Holm's procedure puts them, at 95 % for all together, with moderated variances; q is "
        "Benjamini and Hochberg's. A tree is held against its flat control, which is the same recipe with as many "
        "independent rollouts; everything else against the first row. A run collapsed that ends below half of where it "
        "began; it counts in every mean. A row whose counter never moved is void.\n"
    )


def _table(found: TableRuns, of: Sequence[BoardCell], judged: Mapping[BoardCell, Corrected]) -> str:
    head = ["row", found.metric[of[0].column], "difference", "to", "p (Holm)", "q (BH)", "verdict", "collapsed",
            "acted", "updates", "trained", "processor s"]  # fmt: skip
    rows = [head, ["---"] * len(head)]
    for cell in of:
        numbers, seen = _numbers(found, cell), list(found.values(cell).values())
        acted = "–" if numbers["acted"] is None else f"{numbers['acted']:.3g}"
        spread = f" ± {100 * float(np.std(seen, ddof=1)):.1f}" if len(seen) > 1 else ""
        test = judged.get(cell)
        rows.append([
            cell.row.label, f"{100 * float(np.mean(seen)):.1f}{spread} %", *_tested(test, numbers, _base(found, cell)),
            f"{numbers['collapsed']:.0f} of {len(seen)}", acted,
            *(f"{numbers[n] or 0:.4g}" for n in ("optim/updates", "budget/trained", "time/processor")),
        ])  # fmt: skip
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _tested(test: Corrected | None, numbers: Mapping[str, Any], base: BoardCell) -> list[str]:
    if test is None:
        return ["–"] * 5
    e = test.effect
    said = f"{100 * e.estimate:+.1f} ({100 * e.low:+.1f} to {100 * e.high:+.1f})"
    idle = numbers["acted"] is not None and numbers["acted"] == numbers["rest"]
    return [said, base.row.label, f"{test.p_holm:.3g}", f"{test.p_bh:.3g}", "void" if idle else judge(e)]


def _numbers(found: TableRuns, cell: BoardCell) -> dict[str, Any]:
    """Collapses, the counter, and all costs, means over seeds."""
    # A flat control is there not to act.
    traces, counter = found.traces[cell], None if is_flat(cell.row) else counter_of(cell.row.recipe)
    acted = [v for t in traces if counter is not None and (v := t.mean(counter.metric)) is not None]
    spent = {n: [v for t in traces if (v := t.total(n)) is not None] for n in COSTS}
    fallen = [endpoint(t, "pass@1") < COLLAPSED * t.curve("pass@1")[1][0] for t in traces]
    return {
        "collapsed": float(sum(fallen)), "acted": float(np.mean(acted)) if acted else None,
        "rest": 0.0 if counter is None else counter.rest,
    } | {n: float(np.mean(v)) if v else None for n, v in spent.items()}  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(run_study("board", BoardSettings, main, __doc__))
