"""The credit lens: the path to a node under several credits side by side, flipped tokens marked."""

from __future__ import annotations

import asyncio

from nicegui import ui

from rolltree.analysis.lens import Lens, flipped_nodes, open_lens, pairs
from rolltree.analysis.source import RunSource
from rolltree.analysis.text import pieces_of
from rolltree.credit.registry import credits
from rolltree.view.lens import lens_strips
from rolltree.view.links import link, whole
from rolltree.view.outline import outline
from rolltree.view.pages.frame import Crumb, Site, frame, paged, shown
from rolltree.view.pages.parts import Cell, Column, PageTable, Tokens, heading, legend, says
from rolltree.view.pages.tree import best

FIRST = "grpo,sibling"
"""The credits compared before any are chosen."""


def add(site: Site) -> None:
    """Register the page."""

    @ui.page("/lens", response_timeout=300)
    async def page(  # pyright: ignore[reportUnusedFunction]
        run: str = "", step: str = "", tree: str = "", node: str = "", credits: str = FIRST
    ) -> None:
        async def body() -> None:
            source, at = site.get(run), whole("step", step)
            up = link("tree", run=source.name, step=at, tree=tree, node=node)
            trail = (("the forest" if at is None else f"step {at}", link("step", run=source.name, step=at)), (tree, up))
            with frame(Crumb(f"credits of {tree}", source, at, up, trail=trail if tree else ())):
                await shown(lambda: _draw(source, at, tree, whole("node", node), credits))

        await paged(body)


async def _draw(source: RunSource, step: int | None, id: str, node: int | None, names: str) -> None:
    archive = source.archive(step)
    tree = await asyncio.to_thread(outline, archive, id or archive.trees[0][1])
    row = best(tree) if node is None else tree.row(node)
    heading(f"{tree.id} under several credits", 1)
    known = await asyncio.to_thread(credits)
    chosen = list(dict.fromkeys(n for n in names.split(",") if n))
    here = {"run": source.name, "step": step, "tree": tree.id, "node": int(tree.ids[row])}
    with ui.element("div").classes("bar"):
        ui.select(
            sorted({*known, *chosen, *source.given.credits}), value=chosen, label="credits", multiple=True,
            on_change=lambda e: ui.navigate.to(link("lens", **here, credits=",".join(e.value))),
        ).props("dense outlined use-chips").classes("which-credits")  # fmt: skip
    made = await asyncio.to_thread(open_lens, source, step, chosen, tree=tree.id)
    pieces = await asyncio.to_thread(pieces_of, source)
    many, taught = int(made.flips.sum()), int(made.taught.sum())
    said = "; ".join(f"{p.one} and {p.other}: {p.flipped:,} flips, correlation {p.alike:.2f}" for p in pairs(made))
    says(f"{many:,} of {taught:,} taught tokens change sign. {said}")
    strips, flips = await asyncio.to_thread(lens_strips, made, tree, row, pieces)
    legend(strips[0][1].scale, "boxed: the sign flips")

    def pick(chosen_node: int) -> None:
        ui.navigate.to(link("lens", **{**here, "node": chosen_node}, credits=",".join(chosen)))

    with ui.element("div").classes("lenses").style(f"--many:{len(strips)}"):
        for name, strip in strips:
            with ui.element("section").classes("lens"):
                heading(name)
                made_tokens = Tokens(strip, int(tree.ids[row]), pick)
                for run in made_tokens.props["runs"]:
                    run["marks"] = flips[run["node"]]
    await _list(made, source, step, pieces_note=pieces.note, chosen=chosen)


async def _list(made: Lens, source: RunSource, step: int | None, *, pieces_note: str, chosen: list[str]) -> None:
    nodes = await asyncio.to_thread(flipped_nodes, made, pieces_of(source), 40)
    heading("Nodes with flipped tokens, the widest apart first")
    if pieces_note:
        says(pieces_note)
    if not nodes:
        says("these credits agree about the sign of every token of this tree")
        return
    rows = [
        [Cell(f"node {n.node}", link("lens", run=source.name, step=step, tree=n.tree, node=n.node,
                                     credits=",".join(chosen))),
         Cell(n.text), Cell(str(n.flipped)), *(Cell(f"{a:+.3f}") for a in n.advantage)] for n in nodes
    ]  # fmt: skip
    PageTable([Column("node"), Column("text", "words"), Column("tokens"), *(Column(n) for n in made.names)], rows)
