"""A run: what it was asked to do, how it stands, its first prompt, and its steps, newest first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from fastapi.responses import RedirectResponse
from nicegui import ui

from rolltree.analysis.source import RunSource, nothing
from rolltree.recipe.acted import Acted, acted_in
from rolltree.view.findings import badge
from rolltree.view.first_prompt import FirstPrompt, first_prompt
from rolltree.view.links import link
from rolltree.view.links import whole as whole_number
from rolltree.view.pages.frame import Crumb, Site, follow, frame, paged, shown, stamps
from rolltree.view.pages.parts import Cell, Column, PageSection, PageTable, Words, facts, heading, number, says, trouble
from rolltree.view.runs import (
    STEP_NUMBERS,
    ShownStep,
    Summary,
    lines_of,
    metric_names,
    steps,
    summary,
    tooltip,
    window,
)
from rolltree.view.settings import Settings, settings_of
from rolltree.view.state import ABOUT


def add(site: Site) -> None:
    """Register the page."""

    @ui.page("/run", response_timeout=120)
    async def page(run: str = "", columns: str = "", before: str = "") -> Any:  # pyright: ignore[reportUnusedFunction]
        async def whole() -> Any:
            source = site.get(run)
            if await asyncio.to_thread(lambda: source.single):
                return RedirectResponse(link("step", run=source.name))
            with frame(Crumb(source.name, source, up="/")):
                heading(source.name, 1)
                drawn = RunView(source, tuple(c for c in columns.split(",") if c), whole_number("before", before))
                since = stamps((source,))
                await shown(drawn.draw)
                follow((source,), drawn.draw, since)

            return None

        return await paged(whole)


class RunView:
    """The living part of the page."""

    def __init__(self, source: RunSource, columns: Sequence[str], before: int | None = None) -> None:
        self.source, self.columns, self.before = source, columns, before
        self.state, self.about, self.acts, self.prompt, self.bar, self.said = (PageSection() for _ in range(6))
        self.place = ui.element("div")
        self.further = PageSection()
        self.table: PageTable | None = None

    async def draw(self) -> None:
        """Read the run and show what it says now."""
        about, found, given, prompt, flag, names, acted = await asyncio.to_thread(_read, self.source, self.columns)
        self.state.show((about.state, flag), lambda: self._draw_state(about, flag))
        if about.trouble:
            self.said.show(about.trouble, lambda: trouble(about.trouble))
            return
        self.about.show((about.facts, given), lambda: _draw_about(about, given))
        self.acts.show(acted, lambda: _draw_acted(acted))
        self.prompt.show(prompt, lambda: _draw_prompt(prompt))
        kept = any(s.saved for s in found)
        self.said.show(kept, lambda: None if kept else says(nothing(self.source)))
        if not found:
            return
        wanted = self.columns or STEP_NUMBERS
        used = [n for n in wanted if any(n in s.numbers for s in found)]
        self.bar.show((names, used), lambda: self._draw_bar(names, used))
        heads = [Column("step"), Column("rollouts"), *(Column(n, title=tooltip(n)) for n in used)]
        some, older = window(found, self.before)
        rows = [self._row(s, used) for s in some]
        self.further.show((len(some), len(found), older), lambda: self._draw_further(some, len(found), older))
        if self.table is None:
            with self.place:
                self.table = PageTable(heads, rows, "steps")
        else:
            self.table.show(heads, rows)

    def _row(self, s: ShownStep, used: Sequence[str]) -> list[Cell]:
        name = "the forest" if s.step is None else f"step {s.step}"
        href = link("step", run=self.source.name, step=s.step) if s.saved else ""
        numbers = (Cell(number(s.numbers.get(n, float("nan")))) for n in used)
        return [Cell(name, href), Cell("saved" if s.saved else "–"), *numbers]

    def _draw_state(self, about: Summary, flag: tuple[str, str, str]) -> None:
        with ui.element("div").classes("bar"):
            if about.state:
                with ui.element("span").classes(f"badge {about.state}").tooltip(ABOUT[about.state]):
                    Words(about.state)
            if flag[1]:
                ui.link(f"findings: {flag[0]}", link("findings", run=self.source.name)).classes(flag[1]).tooltip(
                    flag[2]
                )

    def _draw_further(self, some: Sequence[ShownStep], of: int, older: int | None) -> None:
        """Which steps the table holds, and the way to the others."""
        if len(some) == of:
            return
        where = {"run": self.source.name, "columns": ",".join(self.columns)}
        with ui.element("div").classes("bar"):
            says(f"{len(some):,} of {of:,} steps, up to step {some[0].step:,}" if some else f"none of {of:,} steps")
            if self.before is not None:
                ui.link("newest steps", link("run", **where))
            if older is not None:
                ui.link("older steps", link("run", **where, before=older))

    def _draw_bar(self, names: Sequence[str], used: Sequence[str]) -> None:
        with ui.element("div").classes("bar"):
            ui.select(
                list(names), value=list(used), label="columns", multiple=True,
                on_change=lambda e: ui.navigate.to(link("run", run=self.source.name, columns=",".join(e.value))),
            ).props(f'dense outlined display-value="{len(used)} columns"').classes("columns-select")  # fmt: skip


def _read(
    source: RunSource, columns: Sequence[str]
) -> tuple[Summary, list[ShownStep], Settings, FirstPrompt | None, tuple[str, str, str], list[str], Acted | None]:
    about = summary(source)
    if about.trouble:
        return about, [], Settings(), None, badge(source), [], None
    found = steps(source, columns or STEP_NUMBERS)
    lines = [line for line in lines_of(source) if line["kind"] == "train"]
    acted = acted_in(source.config, lines)
    return about, found, settings_of(source.config), first_prompt(source), badge(source), metric_names([lines]), acted


def _draw_about(about: Summary, given: Settings) -> None:
    facts([(name, value) for name, value in about.facts.items() if name != "knobs"], explain=tooltip)
    for title, knobs in (("knobs of the recipe", given.knobs), ("knobs of training", given.training)):
        if knobs:
            with ui.expansion(f"{title}: " + _few(knobs)).classes("shared"):
                facts(knobs)


def _draw_acted(acted: Acted | None) -> None:
    """Whether the recipe's mechanism acted, as the run itself says at its end."""
    if acted is not None:
        (says if acted.acted else trouble)(str(acted))


def _few(knobs: Sequence[tuple[str, str]]) -> str:
    return " ".join(f"{n}={v}" for n, v in knobs[:6]) + (" …" if len(knobs) > 6 else "")


def _draw_prompt(prompt: FirstPrompt | None) -> None:
    if prompt is None:
        return
    with ui.expansion(f"the first prompt, token by token: {len(prompt.tokens):,} tokens").classes(
        "shared first-prompt"
    ):
        says(f"item {prompt.item}")
        with ui.element("div").classes("run-text"):
            for token in prompt.tokens:
                with (
                    ui.element("span")
                    .classes("piece" + (" special" if token.special else ""))
                    .props(f'title="id {token.id}"')
                ):
                    Words(token.text)
        if prompt.hidden:
            says(f"{prompt.hidden:,} more tokens stand in prompt.json")
