"""A step: its prompts in the order of any metric, filtered."""

from __future__ import annotations

import asyncio
from typing import Any

from nicegui import ui

from rolltree.analysis.source import RunSource
from rolltree.analysis.text import pieces_of
from rolltree.view.links import link, whole
from rolltree.view.pages.frame import Crumb, Site, frame, paged, shown
from rolltree.view.pages.parts import Cell, Column, PageTable, heading, number, says
from rolltree.view.prompts import metrics, prompts

HINT = "filter: words of the prompt, or conditions such as reward<0.5 leaves>=8 pruned>0"


def add(site: Site) -> None:
    """Register the page."""

    @ui.page("/step", response_timeout=300)
    async def page(  # pyright: ignore[reportUnusedFunction]
        run: str = "", step: str = "", sort: str = "reward_std", desc: str = "1", q: str = "", page: str = ""
    ) -> None:
        async def body() -> None:
            source, number = site.get(run), whole("step", step)
            title = f"step {number}" if number is not None else "the forest"
            here = link("step", run=source.name, step=number)
            up = link("run", run=source.name) if source.kind == "run" else "/"
            with frame(Crumb(f"{title} of {source.name}", source, number, up, trail=((title, here),))):
                heading(f"Prompts of {title}", 1)
                asked = {"sort": sort, "desc": desc, "q": q}
                await shown(lambda: _draw(source, number, asked, whole("page", page) or 0))

        await paged(body)


async def _draw(source: RunSource, step: int | None, asked: dict[str, str], page: int) -> None:
    here = {"run": source.name, "step": step}

    def address(**changes: Any) -> str:
        return link("step", **{**here, **asked, **changes})

    archive, pieces = await asyncio.to_thread(lambda: (source.archive(step), pieces_of(source)))
    known = await asyncio.to_thread(metrics, archive)
    with ui.element("div").classes("bar"):
        field = (
            ui.input(label="filter", value=asked["q"], placeholder=HINT)
            .props("dense outlined")
            .classes("search-field")
            .style("flex: 1; min-width: 260px")
        )
        field.on("keydown.enter", lambda: ui.navigate.to(address(q=field.value, page=None)))
        ui.select(
            list(known), value=asked["sort"] if asked["sort"] in known else None, label="sorted by",
            on_change=lambda e: ui.navigate.to(address(sort=e.value, page=None)),
        ).props("dense outlined").classes("sort-select")  # fmt: skip
    down = asked["desc"] == "1"
    found = await asyncio.to_thread(
        lambda: prompts(archive, pieces, sort=asked["sort"], descending=down, query=asked["q"], page=page)
    )
    if pieces.note:
        says(pieces.note)
    ui.label(
        f"{found.kept:,} of {found.total:,} prompts, {len(archive):,} nodes in all" if asked["q"]
        else f"{found.total:,} prompts, {len(archive):,} nodes"
    ).classes("soft counted")  # fmt: skip
    heads = [Column("tree"), Column("prompt", "words")]
    for name in found.columns:
        mine = name == asked["sort"]
        turned = address(sort=name, desc="0" if mine and down else "1", page=None)
        mark = (" ↓" if down else " ↑") if mine else ""
        heads.append(Column(name + mark, "", turned, ("descending" if down else "ascending") if mine else ""))
    PageTable(heads, [
        [Cell(p.tree, link("tree", **here, tree=p.tree)), Cell(p.text),
         *(Cell(number(p.numbers[c])) for c in found.columns)]
        for p in found.rows
    ])  # fmt: skip
    if not found.rows:
        says("no prompt passes the filter" if asked["q"] else "this forest has no trees")
    if found.pages > 1:
        with ui.element("div").classes("bar"):
            if found.page:
                ui.link("← previous", address(page=found.page - 1))
            ui.label(f"page {found.page + 1} of {found.pages}").classes("soft")
            if found.page + 1 < found.pages:
                ui.link("next →", address(page=found.page + 1)).classes("next-page")
