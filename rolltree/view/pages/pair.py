"""Two leaves side by side: first where they part and how likely either was, then what became of each."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from nicegui import ui

from rolltree.analysis.source import RunSource
from rolltree.analysis.text import Pieces, pieces_of
from rolltree.view.colours import COLOURINGS, Colouring, colouring_of
from rolltree.view.differ import Difference, Side, differing, first_difference, sides
from rolltree.view.fork import Parting, other_leaf, parting
from rolltree.view.links import link, whole
from rolltree.view.model import leaves, path_strip
from rolltree.view.outline import Outline, outline
from rolltree.view.pages.frame import Crumb, Site, frame, paged, shown
from rolltree.view.pages.parts import Cell, Column, PageTable, Tokens, heading, legend, says
from rolltree.view.rows import events_of
from rolltree.view.strip import Strip
from rolltree.view.words import EventText, event_text

Place = dict[str, str | int | None]


@dataclass(frozen=True)
class NodePair:
    """Everything the page says of two leaves."""

    tree: Outline
    first: int
    second: int
    parted: Parting
    shared: Strip
    sides: tuple[Side, Side]
    difference: Difference | None
    told: tuple[EventText, ...]


def add(site: Site) -> None:
    """Register the page."""

    @ui.page("/pair", response_timeout=120)
    async def page(  # pyright: ignore[reportUnusedFunction]
        run: str = "", step: str = "", tree: str = "", a: str = "", b: str = "", colour: str = "advantage"
    ) -> None:
        async def body() -> None:
            source, at = site.get(run), whole("step", step)
            up = link("tree", run=source.name, step=at, tree=tree, node=a)
            prompts = link("step", run=source.name, step=at)
            trail = ((f"step {at}" if at is not None else "the forest", prompts), (tree or "tree", up))
            with frame(Crumb(f"two leaves of {tree}", source, at, up, trail=trail)):
                await shown(lambda: _draw(source, at, tree, (whole("a", a), whole("b", b)), colouring_of(colour)))

        await paged(body)


def _open(
    source: RunSource, step: int | None, id: str, nodes: tuple[int | None, int | None], colour: Colouring
) -> Outline | NodePair:
    archive = source.archive(step)
    tree = outline(archive, id or archive.trees[0][1])
    first = int(tree.leaf[0]) if nodes[0] is None else tree.row(nodes[0])
    second = other_leaf(tree, first) if nodes[1] is None else tree.row(nodes[1])
    if second is None:
        return tree
    pieces: Pieces = pieces_of(source)
    parted = parting(tree, first, second)
    both = sides(tree, parted, pieces, colour)
    fork = int(tree.ids[parted.fork])
    heads = {int(tree.ids[rows[0]]) for rows in (parted.left, parted.right) if rows}
    events = [event_text(e) for e in events_of(archive, tree.index)]
    told = [e for e in events if e.node == fork and (heads & {*e.children} or e.kind in ("select", "splice"))]
    shared, _ = path_strip(tree, list(parted.shared), pieces, colour)
    return NodePair(tree, first, second, parted, shared, both, first_difference(*both, pieces), tuple(told))


async def _draw(
    source: RunSource, step: int | None, id: str, nodes: tuple[int | None, int | None], colour: Colouring
) -> None:  # fmt: skip
    pair = await asyncio.to_thread(_open, source, step, id, nodes, colour)
    tree = pair if isinstance(pair, Outline) else pair.tree
    heading(f"Two leaves of {tree.id}", 1)
    if isinstance(pair, Outline):
        says("this tree has one leaf only; there is nothing to compare it with")
        return
    here: Place = {"run": source.name, "step": step, "tree": tree.id}
    _draw_bar(pair, here, colour)
    _draw_difference(pair)

    def open_node(node: int) -> None:
        ui.navigate.to(link("tree", **here, node=node, colour=colour))

    with ui.expansion("the shared beginning").classes("shared"):
        Tokens(pair.shared, int(tree.ids[pair.parted.fork]), open_node)
    legend(pair.shared.scale, pair.sides[0].strip.note)
    with ui.element("div").classes("twins"):
        for row, side in zip((pair.first, pair.second), pair.sides, strict=True):
            with ui.element("div").classes("twin"):
                heading(f"Leaf {int(tree.ids[row])}")
                Tokens(side.strip, int(tree.ids[row]), open_node)
    heading("What differs in numbers")
    rows = [[Cell(name), Cell(left), Cell(right)] for name, left, right in differing(tree, *pair.sides)]
    names = [f"leaf {int(tree.ids[row])}" for row in (pair.first, pair.second)]
    if rows:
        PageTable([Column("fact"), *(Column(n, "words") for n in names)], rows, "facts that differ")
    else:
        says("nothing: both leaves have the same facts")


def _draw_bar(pair: NodePair, here: Place, colour: Colouring) -> None:
    tree = pair.tree
    a, b = int(tree.ids[pair.first]), int(tree.ids[pair.second])
    known = {n: f"node {n}" for n in (a, b)} | {leaf.node: leaf.label for leaf in leaves(tree)}
    with ui.element("div").classes("bar"):
        for name, value in (("a", a), ("b", b)):
            chosen = {"a": a, "b": b, "colour": colour}
            ui.select(
                known, value=value, label="left" if name == "a" else "right",
                on_change=lambda e, n=name, c=chosen: ui.navigate.to(link("pair", **here, **{**c, n: e.value})),
            ).props("dense outlined").classes(f"leaf-{name}")  # fmt: skip
        names = [c for c in COLOURINGS if c in tree.colourings or c == colour]
        ui.select(
            names, value=colour, label="colour",
            on_change=lambda e: ui.navigate.to(link("pair", **here, a=a, b=b, colour=e.value)),
        ).props("dense outlined")  # fmt: skip


def _draw_difference(pair: NodePair) -> None:
    tree, found = pair.tree, pair.difference
    fork = int(tree.ids[pair.parted.fork])
    if found is None:
        heading(f"They share {pair.shared.tokens:,} tokens and part at node {fork}; what follows is the same")
    else:
        alike = f", and {found.alike:,} more are the same" if found.alike else ""
        heading(f"They share {pair.shared.tokens:,} tokens{alike}; the first difference")
        names = [f"leaf {int(tree.ids[row])}" for row in (pair.first, pair.second)]
        rows = [
            [Cell(name), Cell(one.text), Cell(one.logp), Cell(one.chance), Cell(one.reward)]
            for name, one in zip(names, (found.left, found.right), strict=True)
        ]
        heads = [Column("leaf"), Column("token", "words"), Column("log p"), Column("probability"), Column("reward")]
        with ui.element("div").classes("difference"):
            PageTable(heads, rows, "the first difference")
    for said in pair.told:
        numbers = " · ".join(f"{k} {v}" for k, v in said.numbers)
        says(said.sentence + (f" ({numbers})" if numbers else ""))
