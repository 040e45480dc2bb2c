"""The published table of what a policy reaches per task and level: `python -m studies.nano.table`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import Engine
from rolltree.policy.nano import FOLDER
from rolltree.task.registry import list_tasks, load_task
from studies.command import run_study
from studies.lab.nano.measure import PolicyMeasure, measure

MARK = "<!-- measured: everything below is written by studies.nano.table -->\n"


async def measure_suite(engine: Engine, *, items: int = 128, samples: int = 16, seed: int = 0) -> list[PolicyMeasure]:
    """Every task at every level."""
    return [
        await measure(engine, load_task(info.name, level=level), items=items, samples=samples, seed=seed)
        for info in list_tasks()
        for level in info.levels
    ]


def markdown(rows: Sequence[PolicyMeasure], defaults: Mapping[str, int]) -> str:
    """The rows as a table; the default level of a task is bold."""
    head = (
        "| task | level | pass@1 | pass@{k} | groups of {n} all equal | tokens a rollout |\n|---|---|---|---|---|---|\n"
    )
    lines = [head.format(k=rows[0].k, n=rows[0].samples)]
    for row in rows:
        level = f"**{row.level}**" if defaults.get(row.task) == row.level else str(row.level)
        lines.append(
            f"| {row.task} | {level} | {_percent(row.pass_1, row.pass_1_interval)} "
            f"| {_percent(row.pass_k, row.pass_k_interval)} | {100 * row.equal_groups:.0f} % | {row.tokens:.0f} |\n"
        )
    return "".join(lines)


def write(rows: Sequence[PolicyMeasure], page: Path, data: Path) -> None:
    """Replace the measured part of a page, and store the rows as JSON."""
    text = page.read_text(encoding="utf-8")
    if MARK not in text:
        raise ValueError(f"{page} has no line {MARK.strip()!r}, below which the table goes: add it")
    defaults = {info.name: load_task(info.name).level for info in list_tasks()}
    note = (
        f"\n{rows[0].items} held-out items, {rows[0].samples} samples each at temperature 1; ± is a 95 % interval.\n\n"
    )
    page.write_text(text.partition(MARK)[0] + MARK + note + markdown(rows, defaults), encoding="utf-8")
    data.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


def _percent(value: float, width: float) -> str:
    return f"{100 * value:.0f} ± {100 * width:.0f} %"


@dataclass(frozen=True)
class TableSettings:
    """What is measured and where the result goes."""

    model: Path = FOLDER
    """A Hugging Face folder."""
    page: Path = Path("docs/tasks.md")
    """The page that is written."""
    data: Path = Path("docs/tasks.json")
    """The file of numbers beside it."""
    items: int = 128
    """Held-out items per task and level."""
    samples: int = 16
    """Rollouts per item."""
    seed: int = 0
    """Where chance starts: the same seed gives the same result."""
    threads: int = 1
    """Threads of processor work."""


async def main(settings: TableSettings) -> None:
    """Measure a policy with the local engine and publish the table."""
    torch.set_num_threads(settings.threads)
    engine = LocalEngine(settings.model)
    try:
        rows = await measure_suite(engine, items=settings.items, samples=settings.samples, seed=settings.seed)
    finally:
        await engine.close()
    write(rows, settings.page, settings.data)


if __name__ == "__main__":
    raise SystemExit(run_study("nano.table", TableSettings, lambda asked: asyncio.run(main(asked)), __doc__))
