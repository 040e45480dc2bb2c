"""The first page: all runs and their curves side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi.responses import RedirectResponse
from nicegui import ui

from rolltree.analysis.line_colours import task_colour
from rolltree.analysis.source import RunSource
from rolltree.errors import RolltreeError
from rolltree.view.findings import badge
from rolltree.view.links import link
from rolltree.view.pages.frame import Crumb, Site, frame, shown, watch
from rolltree.view.pages.parts import Cell, Column, PageSection, PageTable, curve_figure, heading, says, trouble
from rolltree.view.runs import (
    AXES,
    COLUMNS,
    PLAIN,
    Axis,
    Summary,
    chosen,
    curve,
    lines_of,
    metric_names,
    summary,
    tooltip,
)  # fmt: skip
from rolltree.view.state import ABOUT, state_of

SMOOTH = {1: "no smoothing", 5: "mean of 5", 15: "mean of 15", 51: "mean of 51"}
Lines = list[dict[str, Any]]


@dataclass(frozen=True)
class RunsAsked:
    """What the address asks for."""

    metrics: tuple[str, ...] = ()
    axis: Axis = "step"
    columns: tuple[str, ...] = ()
    smooth: int = 1

    def go(self, **changes: Any) -> None:
        """Open the page that also has these changes."""
        given: dict[str, Any] = {
            "metrics": self.metrics, "axis": self.axis, "columns": self.columns, "smooth": self.smooth, **changes,
        }  # fmt: skip
        plain = {k: ",".join(v) if isinstance(v, list | tuple) else v for k, v in given.items()}
        ui.navigate.to("/?" + link("", **plain).partition("?")[2])


def add(site: Site) -> None:
    """Register the page."""

    @ui.page("/", response_timeout=60)
    async def page(  # pyright: ignore[reportUnusedFunction]
        metrics: str = "", axis: str = "step", columns: str = "", smooth: str = "1"
    ) -> Any:
        known: Mapping[str, Axis] = {a: a for a in AXES}
        width = next((w for w in SMOOTH if str(w) == smooth), 1)
        asked = RunsAsked(_list(metrics), known.get(axis, "step"), _list(columns), width)
        only = site.sources[0] if len(site.sources) == 1 else None
        if only is not None and await asyncio.to_thread(lambda: only.single):
            return RedirectResponse(link("step", run=only.name))
        with frame(Crumb("Runs")):
            heading("Runs", 1)
            drawn = RunsView(site, asked)
            since = _stamp(site)
            await shown(drawn.draw)
            watch(lambda: _stamp(site), drawn.draw, since)
        return None


def _stamp(site: Site) -> Any:
    """Changes with the runs there are, and with what each has to show."""
    return [(s.name, s.stamp(), state_of(s)) for s in site.sources]


def _list(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


class RunsView:
    """The living part of the page: what is new is written into the table and the curves that are there."""

    def __init__(self, site: Site, asked: RunsAsked) -> None:
        self.site, self.asked = site, asked
        self.table: PageTable | None = None
        self.place, self.troubles, self.bar, self.curves = PageSection(), PageSection(), PageSection(), PageSection()
        self.plots: dict[str, Any] = {}

    async def draw(self) -> None:
        """Read all runs and show what they say now."""
        sources = list(self.site.sources)
        columns = self.asked.columns or COLUMNS
        rows, measured, badges = await asyncio.to_thread(_read, sources, columns)
        runs = list(measured)
        names = metric_names(list(measured.values()))
        picked = chosen(names, self.asked.metrics)
        self._show_table(rows, badges, [c for c in columns if any(c in row.facts for row in rows)])
        sentences = list(dict.fromkeys(row.trouble for row in rows if row.trouble))
        self.troubles.show(sentences, lambda: _tell(sentences))
        self.bar.show((names, picked), lambda: self._draw_bar(names, picked))
        lines = {
            m: [found for run in runs if (found := curve(run, measured[run], m, self.asked.axis)).x] for m in picked
        }
        tasks = {row.name: row.facts.get("task", "").partition(" ")[0] for row in rows if row.name in measured}
        figures = {m: curve_figure(m, AXES[self.asked.axis], lines[m], tasks, self.asked.smooth) for m in picked}
        if not self.curves.show(picked, lambda: self._draw_curves(figures)):
            for metric, plot in self.plots.items():
                plot.update_figure(figures[metric])

    def _show_table(self, rows: Sequence[Summary], badges: Sequence[Cell], columns: Sequence[str]) -> None:
        heads = [Column("run"), Column("state", "left", title="what the run does now"), Column("findings")]
        heads += [
            Column(c, "knobs" if c == "knobs" else "left" if c in PLAIN else "", title=tooltip(c)) for c in columns
        ]
        cells = [
            [
                Cell(row.name, link("run", run=row.name)),
                Cell(row.state or "–", kind=f"badge {row.state}" if row.state else "", title=ABOUT[row.state]),
                found,
                *(_fact(row, c) for c in columns),
            ]
            for row, found in zip(rows, badges, strict=True)
        ]
        if self.table is None:
            with self.place.place:
                self.table = PageTable(heads, cells, "runs")
        else:
            self.table.show(heads, cells)

    def _draw_bar(self, names: Sequence[str], picked: Sequence[str]) -> None:
        asked = self.asked
        if not names:
            says("No curves yet: no run here has written metrics.")
            return
        known = [*PLAIN[:-1], *(n for n in names if not n.endswith(("_low", "_high")))]
        now = [c for c in asked.columns or COLUMNS if c in known]
        with ui.element("div").classes("bar"):
            ui.select(
                [n for n in names if not n.endswith(("_low", "_high"))], value=list(picked), label="curves",
                multiple=True, on_change=lambda e: asked.go(metrics=e.value),
            ).props("dense outlined use-chips").classes("curves-select")  # fmt: skip
            ui.select(dict(AXES), value=asked.axis, label="along", on_change=lambda e: asked.go(axis=e.value)).props(
                "dense outlined"
            )
            ui.select(
                SMOOTH, value=asked.smooth, label="smoothing", on_change=lambda e: asked.go(smooth=e.value)
            ).props("dense outlined").classes("smooth-select")
            ui.select(
                known, value=now, label="columns of the table", multiple=True,
                on_change=lambda e: asked.go(columns=e.value),
            ).props(f'dense outlined display-value="{len(now)} columns"').classes("columns-select")  # fmt: skip

    def _draw_curves(self, figures: Mapping[str, dict[str, Any]]) -> None:
        self.plots = {}
        with ui.element("div").classes("curves"):
            for metric, figure in figures.items():
                with ui.element("figure").classes("curve"):
                    self.plots[metric] = ui.plotly(figure)
                    with ui.element("figcaption"):
                        ui.label(tooltip(metric) or metric).classes("soft about")


def _fact(row: Summary, name: str) -> Cell:
    text = row.facts.get(name, "")
    return Cell(
        text or "–", title=text if name == "knobs" else "", colour=task_colour(text) if text and name == "task" else ""
    )


def _tell(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        trouble(sentence)


def _read(sources: Sequence[RunSource], columns: Sequence[str]) -> tuple[list[Summary], dict[str, Lines], list[Cell]]:
    rows = [summary(source, columns) for source in sources]
    measured: dict[str, Lines] = {}
    for source in sources:
        try:
            measured[source.name] = lines_of(source)
        except (RolltreeError, OSError):
            continue  # its row says so
    badges: list[Cell] = []
    for source in sources:
        text, kind, about = badge(source)
        badges.append(Cell(text, link("findings", run=source.name) if kind else "", kind, about))
    return rows, {name: lines for name, lines in measured.items() if lines}, badges
