"""What if: choose a place in a tree, sample continuations there, and watch them grow beside what was."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from rolltree.analysis.source import RunSource, ViewError
from rolltree.analysis.text import pieces_of
from rolltree.analysis.whatif import kept_tokens
from rolltree.analysis.whatif_saved import saved_whatifs
from rolltree.credit.registry import credits
from rolltree.errors import RolltreeError
from rolltree.generate.requests import WRITTEN
from rolltree.view.links import link, whole
from rolltree.view.model import path_strip
from rolltree.view.outline import outline
from rolltree.view.pages.frame import Crumb, Site, frame, paged, shown
from rolltree.view.pages.parts import Cell, Column, PageTable, Tokens, button, heading, says, trouble
from rolltree.view.pages.whatif_grown import BADGES, GrownPage
from rolltree.view.whatif_jobs import WhatIfJobs

OWN = "the run's own"
MOST = 512
"""Continuations that are sampled at once from the page."""
ELSEWHERE = (
    "Nothing is sampled from a viewer that others can reach; on the machine of the run: rolltree whatif RUN --node ID"
)


@dataclass(frozen=True)
class WhatIfAsked:
    """What the address asks for. An address never starts anything."""

    tree: str
    node: int | None
    token: int | None
    credit: str


def add(site: Site) -> None:
    """Register the page."""

    @ui.page("/whatif", response_timeout=300)
    async def page(  # pyright: ignore[reportUnusedFunction]
        run: str = "", step: str = "", tree: str = "", node: str = "", token: str = "", saved: str = "",
        credit: str = "",
    ) -> None:  # fmt: skip
        async def body() -> None:
            source, at = site.get(run), whole("step", step)
            asked = WhatIfAsked(tree, whole("node", node), whole("token", token), credit)
            here = link("whatif", run=source.name)
            up = here if saved or asked.node is None else link("tree", run=source.name, step=at, tree=tree, node=node)
            with frame(Crumb(f"what if, {source.name}", source, at, up, trail=(("what if", here),))):
                if saved:
                    await GrownPage(site.whatifs, source, saved, credit).start()
                elif asked.node is not None:
                    await shown(lambda: _form(site.whatifs, source, at, asked))
                else:
                    await shown(lambda: _list(source))

        await paged(body)


async def _list(source: RunSource) -> None:
    heading(f"What if, {source.name}", 1)
    found = await asyncio.to_thread(saved_whatifs, source)
    says("Choose a node of a tree and follow “what if”: further continuations are sampled from there.")
    if not found:
        return
    rows = [
        [Cell(s.name, link("whatif", run=source.name, saved=s.name)),
         Cell(s.about.now, kind=f"badge {BADGES[s.about.now]}"), *(Cell("" if v is None else str(v)) for v in (
             s.about.step, s.about.tree, s.about.node, s.about.kept, s.about.n))] for s in found
    ]  # fmt: skip
    names = ("what if", "state", "step", "tree", "node", "token", "continuations")
    PageTable([Column(n, "left" if n == "tree" else "") for n in names], rows, "saved what-ifs")


async def _form(jobs: WhatIfJobs | None, source: RunSource, step: int | None, asked: WhatIfAsked) -> None:
    archive = source.archive(step)
    tree = await asyncio.to_thread(outline, archive, asked.tree or archive.ids[0])
    row = tree.row(asked.node or 0)
    node = int(tree.ids[row])
    written = tree.word("role", row) in WRITTEN
    heading(f"What if {tree.id} had gone on otherwise at node {node}", 1)
    token = (asked.token or 0) if written else None
    if jobs is None:
        says(ELSEWHERE)
    else:
        await _asking(jobs, source, step, tree.id, node, token, asked.credit)
    pieces = await asyncio.to_thread(pieces_of, source)
    strip, _ = await asyncio.to_thread(path_strip, tree, tree.path(row), pieces, "author")
    heading("The path to it")
    if written:
        says(f"Everything before token {token} of node {node} stays; choose another token of it, or give its number.")

    def go(place: object) -> None:
        chosen, _, at = str(place).partition(" ")
        where = {"run": source.name, "step": step, "tree": tree.id, "node": chosen, "token": at, "credit": asked.credit}
        ui.navigate.to(link("whatif", **where))

    # Where tokens in the middle are left out, what is shown no longer counts them.
    strips = Tokens(strip, node, go, None if strip.hidden else go)
    for run in strips.props["runs"]:
        if run["node"] == node and token is not None and token < len(run["texts"]) and not strip.hidden:
            run["marks"] = [i == token for i in range(len(run["texts"]))]


async def _asking(
    jobs: WhatIfJobs, source: RunSource, step: int | None, tree: str, node: int, token: int | None,
    credit: str,
) -> None:  # fmt: skip
    known = await asyncio.to_thread(credits)
    names = [OWN, *sorted({*known, *source.given.credits})]
    if credit:
        source.names.credit(credit)
    with ui.element("div").classes("bar asking"):
        at: Any = None
        if token is not None:
            # Without bounds of its own: a field moves a value that is out of them without a word, at times after the
            # click that sends it.
            at = ui.number("from token", value=token).props("dense outlined").classes("from-token")
        many: Any = ui.number("continuations", value=8).props("dense outlined")
        many.classes("how-many")
        by: Any = ui.select(names, value=credit or OWN, label="credit").props("dense outlined")
        by.classes("which-credit")
        engine: Any = ui.input("engine", value="local").props("dense outlined").classes("which-engine")
        refused = ui.element("div")

        async def begin() -> None:
            refused.clear()
            try:
                first = None if at is None else _number(at.value, "from token")
                n = _number(many.value, "continuations")
                if not 1 <= n <= MOST:
                    raise ViewError(f"{n} continuations are asked for; give 1 to {MOST}")
                kept_tokens(source.archive(step).tree(tree), node, first)
                job = jobs.start(source, {
                    "step": "" if step is None else str(step), "tree": tree, "node": str(node),
                    "token": "" if first is None else str(first), "n": str(n),
                    "credit": "" if by.value == OWN else str(by.value), "engine": str(engine.value),
                })  # fmt: skip
            except RolltreeError as error:
                with refused:
                    trouble(str(error))
                return
            ui.navigate.to(link("whatif", run=source.name, saved=job.name))

        button("sample", begin, name="begin")


def _number(value: float | None, name: str) -> int:
    """What stands in a field; refused where it is no whole number."""
    if value is None or value % 1 != 0:
        raise ViewError(f"{name}: {'nothing' if value is None else f'{value:g}'} is no whole number")
    return int(value)
