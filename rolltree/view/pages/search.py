"""Search the nodes of a step."""

from __future__ import annotations

import asyncio

from nicegui import ui

from rolltree.analysis.source import RunSource, nothing
from rolltree.analysis.text import pieces_of
from rolltree.view.links import link, whole
from rolltree.view.pages.frame import Crumb, Site, frame, paged, shown
from rolltree.view.pages.parts import Cell, Column, PageTable, heading, number, says
from rolltree.view.search import search

HINT = 'words in the text, or role:env status:pruned finish:length length>100 reward>0 "in quotes"'


def add(site: Site) -> None:
    """Register the page."""

    @ui.page("/search", response_timeout=300)
    async def page(run: str = "", step: str = "", q: str = "") -> None:  # pyright: ignore[reportUnusedFunction]
        async def body() -> None:
            source = site.get(run)
            asked = whole("step", step)
            up = link("run", run=source.name)
            trail = () if asked is None else ((f"step {asked}", link("step", run=source.name, step=asked)),)
            with frame(Crumb(f"search {source.name}", source, asked, up, trail=trail)):
                heading(f"Search {source.name}", 1)
                await shown(lambda: _draw(source, asked, q))

        await paged(body)


async def _draw(source: RunSource, step: int | None, q: str) -> None:
    steps = await asyncio.to_thread(source.steps)
    if not steps:
        says(nothing(source))
        return
    if step not in steps:
        step = steps[-1]
    with ui.element("div").classes("bar"):
        field = (
            ui.input(label="find nodes", value=q, placeholder=HINT)
            .props("dense outlined autofocus")
            .classes("search-field")
            .style("flex: 1; min-width: 260px")
        )
        field.on("keydown.enter", lambda: ui.navigate.to(link("search", run=source.name, step=step, q=field.value)))
        if step is not None:
            names = {s: f"step {s}" for s in steps if s is not None}
            ui.select(
                names, value=step, label="in",
                on_change=lambda e: ui.navigate.to(link("search", run=source.name, step=e.value, q=q)),
            ).props("dense outlined")  # fmt: skip
    archive = await asyncio.to_thread(source.archive, step)
    found = await asyncio.to_thread(lambda: search(archive, pieces_of(source), q))
    if found.note:
        says(found.note)
    if found.hits:
        many = f"{len(found.hits):,} of {found.matches:,}" if found.matches > len(found.hits) else f"{found.matches:,}"
        ui.label(f"{many} found in {len(archive):,} nodes").classes("soft counted")
        heads = [Column("node"), Column("text", "words"), Column("what it is", "left"), Column("path", "words"),
                 Column("reward", title="mean outcome of the judged leaves at or below it")]  # fmt: skip
        PageTable(heads, [
            [Cell(f"{h.tree} · node {h.node}", link("tree", run=source.name, step=step, tree=h.tree, node=h.node)),
             Cell(h.excerpt), Cell(h.about), Cell(h.path), Cell(number(h.reward))]
            for h in found.hits
        ], "nodes found")  # fmt: skip
