"""The first page: all runs and their curves side by side."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from nicegui import ui

from rolltree.errors import RolltreeError
from rolltree.view.links import link
from rolltree.view.pages.frame import Crumb, Site, follow, frame, shown
from rolltree.view.pages.parts import Cell, Column, PageTable, curve_figure, heading, says, trouble
from rolltree.view.runs import AXES, Axis, chosen, curve, lines_of, metric_names, summary, tooltip


def add(site: Site) -> None:
    """Register the page."""

    @ui.page("/", response_timeout=60)
    async def page(metrics: str = "", axis: str = "step") -> None:  # pyright: ignore[reportUnusedFunction]
        known: Mapping[str, Axis] = {a: a for a in AXES}
        along = known.get(axis, "step")
        with frame(Crumb("Runs")):
            heading("Runs", 1)
            body = ui.element("div")

            async def draw() -> None:
                body.clear()
                with body:
                    await shown(lambda: _draw(site, [m for m in metrics.split(",") if m], along))

            await draw()
            follow(site.sources, draw)


async def _draw(site: Site, asked: list[str], axis: Axis) -> None:
    rows = await asyncio.to_thread(lambda: [summary(s) for s in site.sources])
    columns = list(dict.fromkeys(k for row in rows for k in row.facts))
    PageTable(
        [Column("run"), *(Column(c, title=tooltip(c)) for c in columns)],
        [[Cell(r.name, link("run", run=r.name)), *(Cell(r.facts.get(c, "–")) for c in columns)] for r in rows],
    )
    measured = {}
    for source, row in zip(site.sources, rows, strict=True):
        if row.trouble:
            trouble(row.trouble)
            continue
        try:
            measured[source.name] = await asyncio.to_thread(lines_of, source)
        except RolltreeError as error:
            trouble(str(error))
    measured = {name: lines for name, lines in measured.items() if lines}
    if not measured:
        says("No curves yet: no run here has written metrics.")
        return
    names = metric_names(list(measured.values()))
    picked = chosen(names, asked)
    with ui.element("div").classes("bar"):
        ui.select(names, value=picked, label="curves", multiple=True, on_change=lambda e: _go(e.value, axis)).props(
            "dense outlined use-chips"
        ).classes("curves-select")
        ui.select(dict(AXES), value=axis, label="along", on_change=lambda e: _go(picked, e.value)).props(
            "dense outlined"
        )
    runs = list(measured)
    with ui.element("div").classes("curves"):
        for metric in picked:
            lines = [curve(name, measured[name], metric, axis) for name in runs]
            with ui.element("div").classes("curve").props(f"title={json.dumps(tooltip(metric))}"):
                ui.plotly(curve_figure(metric, AXES[axis], [line for line in lines if line.x], runs))


def _go(metrics: list[str], axis: str) -> None:
    ui.navigate.to("/?" + link("", metrics=",".join(metrics), axis=axis).partition("?")[2])
