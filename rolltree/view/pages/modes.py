"""One prompt over training: a slider through the steps, and the branches that appear and die."""

from __future__ import annotations

import asyncio
from typing import Any

from nicegui import ui
from nicegui.element import Element

from rolltree.analysis.decisive import percent
from rolltree.analysis.modes import ShownModes, every_step, leading, life, picture, prompts_over_time, shown_modes
from rolltree.analysis.source import RunSource
from rolltree.analysis.text import pieces_of
from rolltree.view.links import link
from rolltree.view.pages.frame import Crumb, Site, frame, paged, shown
from rolltree.view.pages.parts import Cell, Column, PageTable, heading, says

MOST = 40
"""Branches in the table."""
COLUMNS = 12
"""Steps in the table; more are thinned out evenly."""


class Scrubber(Element, component="../assets/scrubber.js"):
    """The branches of a prompt under a slider of steps."""

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__()
        self._props["data"] = data


def add(site: Site) -> None:
    """Register the page."""

    @ui.page("/modes", response_timeout=300)
    async def page(run: str = "", tree: str = "") -> None:  # pyright: ignore[reportUnusedFunction]
        async def body() -> None:
            source = site.get(run)
            with frame(Crumb(f"{source.name} over time", source, up=link("run", run=source.name))):
                await shown(lambda: _draw(source, tree))

        await paged(body)


async def _draw(source: RunSource, tree: str) -> None:
    heading(f"One prompt over the steps of {source.name}", 1)
    pieces = await asyncio.to_thread(pieces_of, source)
    archive = await asyncio.to_thread(every_step, source)
    found = await asyncio.to_thread(shown_modes, archive, pieces, tree)
    known = await asyncio.to_thread(prompts_over_time, archive, pieces)
    with ui.element("div").classes("bar"):
        ui.select(
            {p.tree: f"{p.text[:90]} ({p.steps} steps)" for p in known}, value=found.tree, label="prompt",
            on_change=lambda e: ui.navigate.to(link("modes", run=source.name, tree=e.value)),
        ).props("dense outlined").classes("which-prompt")  # fmt: skip
    if pieces.note:
        says(pieces.note)
    ui.label("Width: the share of the step's rollouts. Colour: from none right (red) to all right (green).").classes(
        "soft"
    )
    Scrubber(picture(found))
    if found.timeline.folded:
        says(f"{found.timeline.folded:,} branches that are small at every step are left out")
    _table(found)


def _table(found: ShownModes) -> None:
    steps = found.timeline.steps
    heading("Branches whose share changed most")
    count = min(COLUMNS, len(steps))
    at = sorted({round(i * (len(steps) - 1) / max(1, count - 1)) for i in range(count)})
    rows: list[list[Cell]] = []
    for place in leading(found, MOST):
        mode = found.timeline.modes[place]
        shares = [Cell(percent(mode.share[i]) if mode.leaves[i] else "–") for i in at]
        rows.append([Cell(_path(found, place)), Cell(life(mode, steps)), *shares])
    PageTable([Column("branch", "words"), Column("life", "words"), *(Column(f"step {steps[i]}") for i in at)], rows)


def _path(found: ShownModes, place: int) -> str:
    """A branch's text behind the end of what comes before it."""
    above = found.timeline.modes[place].parent
    before = "" if above <= 0 else found.texts[above][-12:]
    return (f"…{before}" if before else "") + found.texts[place][:48]
