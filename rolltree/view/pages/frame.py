"""The frame of every page: where one is, where one can go, the keys, the theme, and what to say of failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import Request, Response
from nicegui import Client, app, context, ui

from rolltree.analysis.source import RunSource
from rolltree.analysis.whatif_saved import BETWEEN, grown_source
from rolltree.errors import RolltreeError, unknown
from rolltree.view.links import link
from rolltree.view.pages.parts import Words, button, heading, trouble
from rolltree.view.state import state_of
from rolltree.view.whatif_jobs import WhatIfJobs

ASSETS = Path(__file__).parents[1] / "assets"
POLL = 2.0
"""Seconds between looks for news of a run that is still training."""
KEYS = (
    ("j  k", "next and previous row; Enter opens it"), ("u", "up: from a tree to its step, from a step to its run"),
    ("g", "all runs"), ("s", "search this step"), ("f", "what the doctor found"), ("/", "type into the search field"),
    ("t", "light or dark"), ("?", "this list"),
)  # fmt: skip
_LOG = logging.getLogger("rolltree.view")


@dataclass(frozen=True)
class Site:
    """What all pages share: the sources, as they are found now."""

    find: Callable[[], Sequence[RunSource]]
    whatifs: WhatIfJobs | None = None
    """What pages may sample with; None where others than this machine can reach them."""

    @property
    def sources(self) -> Sequence[RunSource]:
        """The runs that can be opened; new ones appear by themselves."""
        return self.find()

    def get(self, name: str | None) -> RunSource:
        """A source by the name an address gives; the first one when it gives none."""
        sources = self.sources
        if not name:
            return sources[0]
        for source in sources:
            if source.name == name:
                return source
        if (grown := grown_source(sources, name)) is not None:
            return grown
        raise unknown("run", name, [s.name for s in sources], "open it with: rolltree view RUN")


@dataclass(frozen=True)
class Crumb:
    """Where a page stands, for its links."""

    title: str
    source: RunSource | None = None
    step: int | None = None
    up: str = ""
    keys: Sequence[tuple[str, str]] = ()
    trail: Sequence[tuple[str, str]] = ()
    """Names and addresses from below the run to this page: what leads here."""


def install() -> None:
    """Give every page the style and the keys, and addresses that lead nowhere a page that says so."""
    ui.add_css((ASSETS / "style.css").read_text(encoding="utf-8"), shared=True)
    ui.add_head_html(f"<script>{(ASSETS / 'keys.js').read_text(encoding='utf-8')}</script>", shared=True)


@app.exception_handler(404)
async def _nowhere(request: Request, _: Exception) -> Response:
    with Client(ui.page(""), request=request) as client, frame(Crumb("Nothing here")):
        _missing(f"there is no page {request.url.path}; start again from all runs")
    return client.build_response(request, 404)


@contextmanager
def frame(place: Crumb) -> Generator[None]:
    """The bar on top, then the page."""
    ui.page_title(f"{place.title} · Rolltree")
    request: Any = context.client.request
    theme = request.cookies.get("rolltree-theme") if request is not None else None
    ui.dark_mode({"dark": True, "light": False}.get(theme or ""))
    source = place.source
    with ui.element("nav").classes("top").props('aria-label="where you are"'):
        ui.link("Rolltree", "/").classes("mark home-link")
        if source is not None:
            with ui.element("ol").classes("trail"):
                for name, address in ((source.name, link("run", run=source.name)), *place.trail):
                    with ui.element("li"):
                        ui.link(name, address)
            if place.up:
                ui.link("↑ up", place.up).classes("up-link")
            ui.link("findings", link("findings", run=source.name)).classes("findings-link")
            ui.link("decisive", link("decisive", run=source.name, step=place.step)).classes("decisive-link")
            if source.kind != "nodes":
                ui.link("over time", link("modes", run=source.name)).classes("modes-link")
            if BETWEEN not in source.name:
                ui.link("what if", link("whatif", run=source.name)).classes("whatifs-link")
            ui.link("search", link("search", run=source.name, step=place.step)).classes("search-link")
            _news(source)
        ui.element("div").classes("space")
        with ui.dialog() as dialog, ui.card(), ui.element("div").classes("hint-keys"):
            for key, what in (*place.keys, *KEYS):
                with ui.element("kbd"):
                    ui.label(key)
                ui.label(what)
        button("? keys", dialog.open, name="help-button")
        toggle = ui.element("button").classes("plain theme-button").props('aria-label="light or dark"')
        with toggle.on("click", js_handler="() => window.rolltreeTheme()"):
            Words("◐")
    with ui.element("main").classes("page"):
        yield


async def shown(draw: Callable[[], Awaitable[None]], *, quiet: bool = False) -> None:
    """Draw, or say in one sentence why that cannot be; `quiet` for what is drawn again."""
    waiting = ui.label("" if quiet else "reading …").classes("soft waiting").props('role="status"')
    try:
        await draw()
    except RolltreeError as error:
        _missing(str(error))
    except OSError as error:
        _missing(f"{error.filename or 'a file'} cannot be read: {error.strerror or error}")
    except Exception as error:
        _LOG.exception("a page could not be drawn")
        _missing(f"This page could not be drawn ({type(error).__name__}); the terminal of the viewer says more.")
    finally:
        waiting.delete()


async def paged(draw: Callable[[], Awaitable[Any]]) -> Any:
    """Draw a page that makes its own frame; an address that leads nowhere gets one with the reason in it."""
    try:
        return await draw()
    except RolltreeError as error:
        with frame(Crumb("Nothing here")):
            _missing(str(error))


def _missing(sentence: str) -> None:
    """Why there is nothing to see, under a heading where the page had none yet."""
    if not any(element.tag == "h1" for element in context.client.elements.values()):
        heading("Nothing here", 1)
    trouble(sentence)


async def live(source: RunSource, place: Crumb, title: str, draw: Callable[[RunSource], Awaitable[None]]) -> None:
    """A page about one source: its frame and title, then what `draw` makes, again whenever the source has news."""
    with frame(place):
        heading(title, 1)
        body = ui.element("div")

        async def again() -> None:
            # What is there stays until the new is whole: nothing blinks, and the page keeps its height and its place.
            old = list(body)
            with body:
                fresh = ui.element("div")
            if old:
                fresh.set_visibility(False)
            with fresh:
                await shown(lambda: draw(source), quiet=bool(old))
            for one in old:
                one.delete()
            fresh.set_visibility(True)

        since = stamps((source,))
        await again()
        follow((source,), again, since)


def stamps(sources: Sequence[RunSource]) -> Any:
    """Changes whenever a source has something new."""
    return [(source.stamp(), state_of(source)) for source in sources]


def follow(sources: Sequence[RunSource], redraw: Callable[[], Awaitable[None]], since: Any) -> None:
    """Draw again whenever a source has something new; `since`: its `stamps` before the page read it."""
    watch(lambda: stamps(sources), redraw, since)


def watch(stamp: Callable[[], Any], redraw: Callable[[], Awaitable[None]], since: Any, every: float = POLL) -> None:
    """Draw again whenever a stamp has changed; it is read beside the pages, as it may look at many files.

    `since` is the stamp before the first drawing: what came while that was made is drawn next.
    """
    seen = [since]

    async def look() -> None:
        now = await asyncio.to_thread(stamp)
        if now != seen[0]:
            seen[0] = now
            await redraw()

    ui.timer(every, look, immediate=False)


def _news(source: RunSource) -> None:
    """A link to the newest step once it is newer than when the page was opened."""
    if source.kind != "run":
        return
    place = ui.element("span").classes("news")
    since = stamps((source,))
    known = max((s for s in source.steps() if s is not None), default=0)

    async def redraw() -> None:
        latest = max((s for s in source.steps() if s is not None), default=0)
        if latest > known:
            place.clear()
            with place:
                ui.link(f"step {latest} is in", link("step", run=source.name, step=latest))

    follow((source,), redraw, since)
