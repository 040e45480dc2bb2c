"""Fill the pages and the README from finished tables: `python -m studies.publish`.

Every `NAME.json` of `studies.board` found in `--runs` is stored under docs/measured/tables; pages there are brought up
to today's rules. From what stands there docs/measured/tables.md, docs/measured/practice.md and the tables at the top of
the README are written again. Nothing is run, and what has no table is left out.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rolltree.compare.regimes import CALIBRATED
from rolltree.compare.runner import Runner
from rolltree.compare.trace import LabError
from studies import practice
from studies.board import apart_of
from studies.command import run_study
from studies.confirmed import ConfirmedFamily, families, section, sentence
from studies.map_figure import map_figure
from studies.preregistration import FOLDER
from studies.stored_table import StoredCell, StoredTable, load
from studies.tables import TABLES
from studies.todays_rules import brought_up

BEGIN, END = "<!-- tables: written by studies.publish -->", "<!-- end of tables -->"
SCREEN = "A screen: a verdict here waits for its [confirmation on fresh seeds](docs/howto/regimes.md#confirmation)."
IN_README = ("stability", "credits-long", "credits-noisy", "trees-fresh", "trees-long", "trees-noisy")


@dataclass(frozen=True)
class PublishSettings:
    """What is read and written."""

    runs: Path = Path("runs/studies")
    """Folder of finished tables."""
    docs: Path = Path("docs/measured")
    """Folder of the pages."""
    readme: Path = Path("README.md")
    """The page that opens with the tables."""
    calibrated: Path = CALIBRATED
    """Folder of calibrations."""
    evidence: Path = Path("evidence")
    """Folder of stored evidence."""
    preregistered: Path = FOLDER
    """Folder of preregistrations and what came of them."""


def main(settings: PublishSettings, runner: Runner | None = None) -> list[str]:
    """Store, write, and say which tables stand."""
    if runner is None:
        from rolltree.compare.train_runner import TrainRunner

        runner = TrainRunner()
    kept = settings.docs / "tables"
    kept.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        for end in (".json", ".md"):
            if (made := settings.runs / f"{name}{end}").is_file():
                shutil.copyfile(made, kept / made.name)
    tables = [load(kept / f"{name}.json") for name in TABLES if (kept / f"{name}.json").is_file()]
    for table in tables:
        if (page := kept / f"{table.plan.name}.md").is_file():
            _write(page, brought_up(page.read_text(encoding="utf-8"), table, apart_of(table.plan, runner)))
    errors = settings.docs / "error-rates.json"
    sure = families(settings.preregistered)
    _write(settings.docs / "tables.md", _tables(tables, kept, settings.calibrated, sure))
    _write(settings.docs / "practice.md", practice.page(tables, settings.calibrated, errors, settings.evidence, sure))
    told = [f"{sentence(family)} [Table](docs/measured/tables.md#confirmations)" for family in sure]
    for table in tables:
        if table.is_map:
            _write(settings.docs / f"{table.plan.name}.svg", map_figure(table))
    _between(settings.readme, [*(shown(t) for t in tables if t.plan.name in IN_README), *told])
    names = [table.plan.name for table in tables]
    print(f"tables: {', '.join(names) or 'none is finished yet'}")
    return names


def shown(table: StoredTable) -> str:
    """A table in the README: a figure where it lies over two conditions, else rows and columns."""
    if not table.is_map:
        return compact(table)
    name, first = table.plan.name, table.rows[0]
    about = f"{table.plan.title}: held-out pass@1 of {len(table.rows)} rows in {len(table.columns)} columns"
    return (
        f"![{about}](docs/measured/{name}.svg)\n\nColumns are [regimes](docs/howto/regimes.md) and rates, as multiples "
        f"of the one calibrated for {first}; each field is {_seeds(table)} seeds, its difference to {first} one of all "
        f"comparisons of the map ([every number](docs/measured/tables.md#{name})). "
        + SCREEN + (f" {table.plan.note}" if table.plan.note else "")
    )  # fmt: skip


def _seeds(table: StoredTable) -> str:
    return " or ".join(map(str, sorted({len(c.values) for c in table.cells})))


def _more(table: StoredTable) -> str:
    """Whose mean is over more seeds than those that the others are compared on."""
    first = [c for c in table.cells if c.label == table.rows[0]]
    if len({len(c.values) for c in table.cells}) == 1 or len({len(c.values) for c in first}) > 1:
        return ""
    return f" (all {len(first[0].values)} are {table.rows[0]}'s, of which the first are compared)"


def compact(table: StoredTable) -> str:
    """A table with a row for each method: mean and interval, the paired difference, the verdict where it is decided,
    collapses, processor seconds."""
    head = ["", *table.columns, "processor s"]
    rows = [head, ["---"] * len(head)]
    for label in table.rows:
        cells = [table.at(label, column) for column in table.columns]
        spent = [c.costs.get("time/processor") or 0.0 for c in cells if c is not None]
        rows.append([label, *map(_short, cells), f"{sum(spent) / len(spent):.0f}"])
    return (
        f"**{table.plan.title}.** Held-out pass@1 in %, mean and 95 % interval over {_seeds(table)} "
        f"seeds{_more(table)}; in brackets the difference to {_bases(table)} on the seeds both have, with an interval "
        "corrected over all comparisons; the verdict where there is one, and runs that collapsed "
        f"([whole table](docs/measured/tables.md#{table.plan.name})). {SCREEN}"
        + (f" {table.plan.note}" if table.plan.note else "") + "\n\n"
        + "\n".join("| " + " | ".join(row) + " |" for row in rows)
    )  # fmt: skip


def _bases(table: StoredTable) -> str:
    """What rows are held against."""
    first = table.plan.rows()[0].label
    if not any(row.flat for row in table.plan.arms):
        return first
    return f"what a row is held against (a tree its flat control, the others {first})"


def _short(cell: StoredCell | None) -> str:
    if cell is None:
        return "–"
    half = 50 * (cell.mean.high - cell.mean.low)
    spread = f" ± {half:.1f}" if len(cell.values) > 1 else ""
    said = "" if cell.verdict in ("", "no difference found") else f", {cell.verdict}"
    fallen = f", {cell.collapsed} of {len(cell.values)} collapsed" if cell.collapsed else ""
    e = None if cell.test is None else cell.test.effect
    apart = "" if e is None else f" ({100 * e.estimate:+.1f}; {100 * e.low:+.1f} to {100 * e.high:+.1f})"
    return f"{100 * cell.mean.estimate:.1f}{spread}{apart}{said}{fallen}"


def _tables(tables: Sequence[StoredTable], kept: Path, calibrations: Path, sure: list[ConfirmedFamily]) -> str:
    parts = ["# Tables of the studies\n\nWritten by `python -m studies.publish`; the numbers of each seed lie in "
             "`tables/NAME.json`. [How they are made](../howto/regimes.md).\n"]  # fmt: skip
    for table in tables:
        whole = kept / f"{table.plan.name}.md"
        text = whole.read_text(encoding="utf-8") if whole.is_file() else compact(table)
        body = text.partition("\n")[2].replace("\n## ", "\n### ")
        note = f"\n{table.plan.note}\n" if table.plan.note else ""
        seen = f"\n![{table.plan.title}]({table.plan.name}.svg)\n" if table.is_map else ""
        parts.append(f"## {table.plan.title} {{ #{table.plan.name} }}\n{note}{seen}{body}")
    if sure:
        parts.append(section(sure))
    if rows := _calibrations(calibrations):
        about = "The plain baseline at every rate and number of updates, on seeds nothing else uses; bold is what all "
        about += "arms of the regime are trained with."
        parts.append(f"## Calibration {{ #calibration }}\n\n{about}\n\n{rows}\n")
    return "\n".join(parts)


def _calibrations(folder: Path) -> str:
    rows = [["regime", "rate", "updates", "mean", "seeds"], ["---"] * 5]
    for path in sorted(folder.glob("*.json")):
        raw = cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))
        for one in raw["tried"]:
            bold = "**" if {"lr": one["lr"], "updates": one["updates"]} == raw["chosen"] else ""
            each = ", ".join(f"{100 * v:.1f}" for v in one["per_seed"])
            rows.append([raw["regime"], f"{bold}{one['lr']:g}{bold}", f"{bold}{one['updates']}{bold}",
                         f"{100 * one['mean']:.1f} %", each])  # fmt: skip
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) if len(rows) > 2 else ""


def _between(path: Path, parts: Sequence[str]) -> None:
    """Write between the marks of a page, and nowhere else."""
    text = path.read_text(encoding="utf-8")
    before, begun, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise LabError(f"{path} has no lines {BEGIN} and {END}, between which the tables go; add them")
    inside = "".join(f"\n{part}\n" for part in parts) + ("\n" if parts else "")
    _write(path, f"{before}{BEGIN}\n{inside}{END}{after}")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(run_study("publish", PublishSettings, main, __doc__))
