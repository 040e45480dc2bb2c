"""The frame of every page: where one is, where one can go, the keys, the theme, and what to say of failures."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nicegui import context, ui

from rolltree.errors import RolltreeError, unknown
from rolltree.view.links import link
from rolltree.view.pages.parts import Words, button, heading, trouble
from rolltree.view.source import RunSource

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
    """What all pages share: the opened sources."""

    sources: tuple[RunSource, ...]

    def get(self, name: str | None) -> RunSource:
        """A source by the name an address gives; the first one when it gives none."""
        if not name:
            return self.sources[0]
        for source in self.sources:
            if source.name == name:
                return source
        raise unknown("run", name, [s.name for s in self.sources], "open it with: rolltree view RUN")


@dataclass(frozen=True)
class Crumb:
    """Where a page stands, for its links."""

    title: str
    source: RunSource | None = None
    step: int | None = None
    up: str = ""
    keys: Sequence[tuple[str, str]] = ()


def install() -> None:
    """Give every page the style and the keys."""
    ui.add_css((ASSETS / "style.css").read_text(encoding="utf-8"), shared=True)
    ui.add_head_html(f"<script>{(ASSETS / 'keys.js').read_text(encoding='utf-8')}</script>", shared=True)


@contextmanager
def frame(place: Crumb) -> Generator[None]:
    """The bar on top, then the page."""
    ui.page_title(f"{place.title} · Rolltree")
    request: Any = context.client.request
    theme = request.cookies.get("rolltree-theme") if request is not None else None
    ui.dark_mode({"dark": True, "light": False}.get(theme or ""))
    source = place.source
    with ui.element("nav").classes("top"):
        ui.link("Rolltree", "/").classes("mark home-link")
        if source is not None:
            ui.link(source.name, link("run", run=source.name))
            if place.up:
                ui.link("↑ up", place.up).classes("up-link")
            ui.link("findings", link("findings", run=source.name)).classes("findings-link")
            ui.link("decisive", link("decisive", run=source.name, step=place.step)).classes("decisive-link")
            if source.kind != "nodes":
                ui.link("over time", link("modes", run=source.name)).classes("modes-link")
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
    with ui.element("div").classes("page"):
        yield


async def shown(draw: Callable[[], Awaitable[None]]) -> None:
    """Draw, or say in one sentence why that cannot be."""
    waiting = ui.label("reading …").classes("soft waiting")
    try:
        await draw()
    except RolltreeError as error:
        trouble(str(error))
    except OSError as error:
        trouble(f"{error.filename or 'a file'} cannot be read: {error.strerror or error}")
    except Exception as error:
        _LOG.exception("a page could not be drawn")
        trouble(f"This page could not be drawn ({type(error).__name__}); the terminal of the viewer says more.")
    finally:
        waiting.delete()


async def paged(draw: Callable[[], Awaitable[None]]) -> None:
    """Draw a page that makes its own frame; an address that leads nowhere gets one with the reason in it."""
    try:
        await draw()
    except RolltreeError as error:
        with frame(Crumb("Nothing here")):
            trouble(str(error))


async def live(source: RunSource, place: Crumb, title: str, draw: Callable[[RunSource], Awaitable[None]]) -> None:
    """A page about one source: its frame and title, then what `draw` makes, again whenever the source has news."""
    with frame(place):
        heading(title, 1)
        body = ui.element("div")

        async def again() -> None:
            body.clear()
            with body:
                await shown(lambda: draw(source))

        await again()
        follow((source,), again)


def follow(sources: Sequence[RunSource], redraw: Callable[[], Awaitable[None]]) -> None:
    """Draw again whenever a source has something new."""
    seen = [source.stamp() for source in sources]

    async def look() -> None:
        now = [source.stamp() for source in sources]
        if now != seen:
            seen[:] = now
            await redraw()

    ui.timer(POLL, look, immediate=False)


def _news(source: RunSource) -> None:
    """A link to the newest step once it is newer than when the page was opened."""
    if source.kind != "run":
        return
    place = ui.element("span").classes("news")
    known = max((s for s in source.steps() if s is not None), default=0)

    async def redraw() -> None:
        latest = max((s for s in source.steps() if s is not None), default=0)
        if latest > known:
            place.clear()
            with place:
                ui.link(f"step {latest} is in", link("step", run=source.name, step=latest))

    follow((source,), redraw)
