"""Two leaves side by side, from the fork where they part."""

from __future__ import annotations

import asyncio

from nicegui import ui

from rolltree.view.colours import COLOURINGS, Colouring, colouring_of
from rolltree.view.fork import Parting, other_leaf, parting
from rolltree.view.links import link, whole
from rolltree.view.model import leaves, node_facts, path_strip, twin_strips
from rolltree.view.outline import Outline, outline
from rolltree.view.pages.frame import Crumb, Site, frame, paged, shown
from rolltree.view.pages.parts import Tokens, facts, heading, legend, says
from rolltree.view.rows import events_of
from rolltree.view.source import RunSource
from rolltree.view.text import Pieces, pieces_of
from rolltree.view.words import event_text


def add(site: Site) -> None:
    """Register the page."""

    @ui.page("/pair", response_timeout=120)
    async def page(  # pyright: ignore[reportUnusedFunction]
        run: str = "", step: str = "", tree: str = "", a: str = "", b: str = "", colour: str = "advantage"
    ) -> None:
        async def body() -> None:
            source, at = site.get(run), whole("step", step)
            up = link("tree", run=source.name, step=at, tree=tree, node=a)
            with frame(Crumb(f"two leaves of {tree}", source, at, up)):
                await shown(lambda: _draw(source, at, tree, (whole("a", a), whole("b", b)), colouring_of(colour)))

        await paged(body)


def _open(source: RunSource, step: int | None, id: str, nodes: tuple[int | None, int | None]):
    archive = source.archive(step)
    tree = outline(archive, id or archive.trees[0][1])
    first = int(tree.leaf[0]) if nodes[0] is None else tree.row(nodes[0])
    second = other_leaf(tree, first) if nodes[1] is None else tree.row(nodes[1])
    return tree, pieces_of(source), first, second


async def _draw(
    source: RunSource, step: int | None, id: str, nodes: tuple[int | None, int | None], colour: Colouring
) -> None:  # fmt: skip
    tree, pieces, first, second = await asyncio.to_thread(_open, source, step, id, nodes)
    heading(f"Two leaves of {tree.id}", 1)
    if second is None:
        says("this tree has one leaf only; there is nothing to compare it with")
        return
    parted = parting(tree, first, second)
    here = {"run": source.name, "step": step, "tree": tree.id}
    a, b = int(tree.ids[first]), int(tree.ids[second])
    known = {n: f"node {n}" for n in (a, b)} | {leaf.node: leaf.label for leaf in leaves(tree)}
    with ui.element("div").classes("bar"):
        for name, value in (("a", a), ("b", b)):
            chosen = {"a": a, "b": b, "colour": colour}
            ui.select(
                known, value=value, label="left" if name == "a" else "right",
                on_change=lambda e, n=name, c=chosen: ui.navigate.to(link("pair", **here, **{**c, n: e.value})),
            ).props("dense outlined").classes(f"leaf-{name}")  # fmt: skip
        ui.select(
            list(COLOURINGS), value=colour, label="colour",
            on_change=lambda e: ui.navigate.to(link("pair", **here, a=a, b=b, colour=e.value)),
        ).props("dense outlined")  # fmt: skip
    await _sides(source, tree, pieces, parted, colour, here)


async def _sides(
    source: RunSource, tree: Outline, pieces: Pieces, parted: Parting, colour: Colouring,
    here: dict[str, str | int | None],
) -> None:  # fmt: skip
    fork = int(tree.ids[parted.fork])
    shared, _ = await asyncio.to_thread(path_strip, tree, list(parted.shared), pieces, colour)

    def open_node(node: int) -> None:
        ui.navigate.to(link("tree", **here, node=node, colour=colour))

    heads = {int(tree.ids[rows[0]]) for rows in (parted.left, parted.right) if rows}
    heading(f"They share {shared.tokens:,} tokens and part at node {fork}")
    for event in await asyncio.to_thread(events_of, tree.archive, tree.index):
        said = event_text(event)
        if said.node == fork and (heads & {*said.children} or event.kind in ("select", "splice")):
            numbers = " · ".join(f"{k} {v}" for k, v in said.numbers)
            says(said.sentence + (f" ({numbers})" if numbers else ""))
    with ui.expansion("the shared beginning").classes("shared"):
        Tokens(shared, fork, open_node)
    with ui.element("div").classes("twins"):
        sides = [rows or (parted.fork,) for rows in (parted.left, parted.right)]
        drawn = await asyncio.to_thread(twin_strips, tree, sides, pieces, colour)
        for rows, (strip, records) in zip(sides, drawn, strict=True):
            last = rows[-1]
            with ui.element("div").classes("twin"):
                heading(f"Leaf {int(tree.ids[last])}")
                facts(node_facts(tree, last, records[-1]))
                legend(strip.scale, strip.note)
                Tokens(strip, int(tree.ids[last]), open_node)
