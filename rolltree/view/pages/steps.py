"""A run: its steps, newest first."""

from __future__ import annotations

import asyncio

from nicegui import ui

from rolltree.view.links import link
from rolltree.view.pages.frame import Crumb, Site, live, paged
from rolltree.view.pages.parts import Cell, Column, PageTable, facts, number, says, trouble
from rolltree.view.runs import STEP_NUMBERS, steps, summary, tooltip
from rolltree.view.source import RunSource, nothing


def add(site: Site) -> None:
    """Register the page."""

    @ui.page("/run", response_timeout=120)
    async def page(run: str = "") -> None:  # pyright: ignore[reportUnusedFunction]
        async def whole() -> None:
            source = site.get(run)
            await live(source, Crumb(source.name, source, up="/"), source.name, _draw)

        await paged(whole)


async def _draw(source: RunSource) -> None:
    about = await asyncio.to_thread(summary, source)
    if about.trouble:
        trouble(about.trouble)
        return
    facts(list(about.facts.items()))
    found = await asyncio.to_thread(steps, source)
    if not found:
        says(nothing(source))
        return
    if not any(s.saved for s in found):
        says(nothing(source))
    used = [n for n in STEP_NUMBERS if any(n in s.numbers for s in found)]
    rows: list[list[Cell]] = []
    for s in found:
        name = "the forest" if s.step is None else f"step {s.step}"
        href = link("step", run=source.name, step=s.step) if s.saved else ""
        kept = "saved" if s.saved else "–"
        rows.append([Cell(name, href), Cell(kept), *(Cell(number(s.numbers.get(n, float("nan")))) for n in used)])
    PageTable([Column("step"), Column("rollouts"), *(Column(n, title=tooltip(n)) for n in used)], rows)
