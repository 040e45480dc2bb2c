"""What we would tell a practitioner: sentences that are written from stored tables, and none without one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from studies.confirmed import ConfirmedFamily, sentence
from studies.lab.entry import load_entries
from studies.lab.entry_family import counted, together
from studies.power import LOOKS, SCREEN, PowerSettings
from studies.stored_table import BETTER, StoredCell, StoredTable
from studies.tables import base_of

Sentences = Iterator[tuple[str, str]]
"""Each with the page that has its table."""
TABLES_PAGE = "tables.md"
_ABOUT = {
    "stability": "Corrections of stale rollouts", "schedules": "Schedules",
    "credits-long": "Credits over many turns", "credits-noisy": "Credits where tools fail",
    "stale-parts": "What a correction does, each part on top of those before",
    "trees-fresh": "Trees for answers of one turn", "trees-long": "Trees over many turns",
    "trees-noisy": "Trees where tools fail", "real": "Recipes on a real model",
}  # fmt: skip


def calibrated(folder: Path) -> Sentences:
    """How much the rate decides, by regime."""
    told: list[str] = []
    for path in sorted(folder.glob("*.json")):
        raw = cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))
        ends = [100 * float(one["mean"]) for one in raw["tried"]]
        lr, updates = raw["chosen"]["lr"], raw["chosen"]["updates"]
        told.append(f"between {min(ends):.1f} and {max(ends):.1f} % on `{raw['regime']}` (best at {lr:g}, {updates})")
    if told:
        yield (f"Calibrate first: over rates and updates alone the same baseline ends {', '.join(told)}.",
               f"{TABLES_PAGE}#calibration")  # fmt: skip


def seeds(path: Path) -> Sentences:
    """What a study of this size can see."""
    found = cast("list[dict[str, Any]]", json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else []
    told_of = PowerSettings()
    power = {(r["noise"], r["effect"]): r["power"] for r in found
             if r["power"] is not None and r.get("procedure", "study") == "study"}  # fmt: skip
    seen = sorted((effect, found) for (noise, effect), found in power.items() if noise == "normal")
    if seen:
        told = ", ".join(f"{100 * found:.0f} % of effects of {effect:g} points" for effect, found in seen)
        fallen = "".join(
            f"; where one run in fifty collapses, {100 * found:.0f} % of those of {effect:g}"
            for (noise, effect), found in sorted(power.items()) if noise == "collapses" and effect == told_of.effect
        )  # fmt: skip
        most = LOOKS[-1]
        yield (
            f"Count seeds: a screen on {SCREEN} and a confirmation on up to {most} fresh ones find {told}, where a "
            f"paired difference spreads by {told_of.spread:g} points{fallen}.",
            "error-rates.md",
        )


def claims(folder: Path) -> Sentences:
    """What became of published claims at this size."""
    entries = load_entries(folder)
    verdicts, told = together(entries), list[str]()
    for kinds, by in ((("training",), "in training"), (("exact", "simulated"), "on simulated or exact problems")):
        names = {e.name for e in entries if e.kind in kinds}
        found = counted({name: verdict for name, verdict in verdicts.items() if name in names})
        if found:
            void, rest = found.pop("void", 0), ", ".join(f"{n} × {verdict}" for verdict, n in found.items())
            told.append(f"of {len(names)} published claims asked {by} {void or 'none'} could not be answered, and the "
                        f"others are {rest}")  # fmt: skip
    if told:
        yield f"Expect little of a single method: {'; '.join(told)}.", "evidence.md"


def verdicts(table: StoredTable) -> Sentences:
    """What is better and worse than its base: one sentence a table, a part of it for each rate."""
    about, page = _ABOUT.get(table.plan.name, table.plan.title), f"{TABLES_PAGE}#{table.plan.name}"
    of_rate: dict[str, list[str]] = {}
    for column in table.columns:
        regime, _, rate = column.partition(", ")
        of_rate.setdefault(rate, []).extend(_column(table, column, regime))
    said = [f"{rate}{': ' if rate else ''}{'. '.join(told)}.{_fallen(table, rate)}" for rate, told in of_rate.items()
            if told]  # fmt: skip
    if said:
        words = " ".join(one[:1].upper() + one[1:] if n else one for n, one in enumerate(said))
        yield f"{about}{', ' if len(of_rate) > 1 else ': '}{words}", page


def level(tables: Sequence[StoredTable]) -> Sentences:
    """The tables in which nothing is told apart, in one sentence."""
    told: list[str] = []
    for table in tables:
        name, rows = table.plan.title.partition(",")[0].lower(), len(_own(table)) - 1
        told.append(f"{name} on {', '.join(f'`{column}`' for column in table.columns)} ({rows} rows)")
    if told:
        page = TABLES_PAGE if len(tables) > 1 else f"{TABLES_PAGE}#{tables[0].plan.name}"
        yield f"Nothing is told apart from what it is held against among {' and '.join(told)}.", page


def _column(table: StoredTable, column: str, regime: str) -> list[str]:
    tested = [c for c in table.cells if c.column == column and c.test is not None and c.label in _own(table)]
    if not tested:
        return []
    if why := next((c.lost for c in tested if c.lost), ""):
        stood = ", ".join(c.label for c in tested if not c.collapsed)
        return [f"`{regime}`: no verdict, because {why}; without a collapse {stood or 'none'}"]
    better, worse = _where(tested, BETTER), _where(tested, ("worse",))
    idle = _where(tested, ("void",))
    rest = len(tested) - len(better) - len(worse) - len(idle)
    said = [f"better {_named(table, better)}" if better else "", f"worse {_named(table, worse)}" if worse else "",
            f"never acted {', '.join(c.label for c in idle)}" if idle else "",
            f"not told apart {rest} of {len(tested)}" if rest else ""]  # fmt: skip
    return [f"`{regime}`: {'; '.join(words for words in said if words)}"]


def _fallen(table: StoredTable, rate: str) -> str:
    """Where the first row comes down."""
    first = table.plan.rows()[0].label
    down = [f"{cell.collapsed} of {len(cell.values)} runs at `{cell.column.partition(', ')[0]}`" for cell in table.cells
            if cell.label == first and cell.collapsed and cell.column.partition(", ")[2] == rate]  # fmt: skip
    return f" {first} collapses in {', '.join(down)}." if down else ""


def simulated(table: StoredTable) -> Sentences:
    """What waiting costs, where schedules are compared."""
    if not any(knob.startswith("train.scheduler=") for row in table.plan.arms for knob in row.knobs):
        return
    name, first = "time/simulated", table.plan.rows()[0].label
    for column in table.columns:
        base = table.at(first, column)
        known = [c for c in table.cells if c.column == column and c.costs.get(name) and c.label != first]
        took = None if base is None else base.costs.get(name)
        if known and took:
            told = ", ".join(f"{c.label} {100 * ((c.costs[name] or 0.0) / took - 1):+.0f} %" for c in known)
            yield f"Simulated time beside {first}, {column}: {told}.", f"{TABLES_PAGE}#{table.plan.name}"


OF_TABLE: tuple[Callable[[StoredTable], Sentences], ...] = (verdicts, simulated)


def page(
    tables: Sequence[StoredTable],
    calibrations: Path,
    errors: Path,
    evidence: Path,
    sure: Sequence[ConfirmedFamily],
) -> str:
    """All sentences that have a table."""
    told = [*calibrated(calibrations), *seeds(errors), *claims(evidence)]
    if sure:
        told += [(" ".join(map(sentence, sure)), f"{TABLES_PAGE}#confirmations")]
    decided = [table for table in tables if _decided(table)]
    told += [sentence for table in decided for of in OF_TABLE for sentence in of(table)]
    told += level([table for table in tables if table not in decided])
    lines = [f"{n}. {words} [Table]({where})" for n, (words, where) in enumerate(told, 1)]
    return (
        "# What we would tell a practitioner\n\nWritten by `python -m studies.publish` from stored tables, at the size "
        "of the embedded policy. A\nsentence stands here only where its table does. Tables are screens: better and "
        "worse wait for a [confirmation](../howto/regimes.md#confirmation).\n\n" + "\n".join(lines) + "\n"
    )


def _decided(table: StoredTable) -> bool:
    return any(c.verdict in (*BETTER, "worse") or c.collapsed for c in table.cells)


def _own(table: StoredTable) -> list[str]:
    """Rows that are no control."""
    return [row.label for row in table.plan.arms]


def _where(cells: Sequence[StoredCell], verdicts: Sequence[str]) -> list[StoredCell]:
    return [c for c in cells if c.verdict in verdicts]


def _named(table: StoredTable, cells: Sequence[StoredCell]) -> str:
    told: list[str] = []
    for cell in cells:
        if cell.test is not None:
            told.append(f"{cell.label} ({100 * cell.test.effect.estimate:+.1f}{_updates(table, cell)})")
    return ", ".join(told)


def _updates(table: StoredTable, cell: StoredCell) -> str:
    """How often it was updated, where that is far from how often what it is held against was."""
    base = table.at(base_of(table.plan, cell.label, set(table.rows)), cell.column)
    mine, theirs = (None if c is None else c.costs.get("optim/updates") for c in (cell, base))
    apart = mine and theirs and not 0.67 < mine / theirs < 1.5
    return f", in {mine:.0f} updates against {theirs:.0f}" if apart else ""
