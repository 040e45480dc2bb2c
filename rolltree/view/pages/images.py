"""A tree of latents as pictures: a thumbnail at every node, and a path's denoising as a strip."""

from __future__ import annotations

import asyncio

from nicegui import ui

from rolltree.analysis.source import RunSource
from rolltree.latents.images import frames, strip_svg, tree_svg
from rolltree.tree import Tree
from rolltree.tree.store.parquet import parts, read_trees
from rolltree.view.links import link, whole
from rolltree.view.pages.frame import Crumb, Site, frame, paged, shown
from rolltree.view.pages.parts import heading, says


def add(site: Site) -> None:
    """Register the page."""

    @ui.page("/images", response_timeout=120)
    async def page(  # pyright: ignore[reportUnusedFunction]
        run: str = "", step: str = "", tree: str = "", node: str = ""
    ) -> None:
        async def body() -> None:
            source, at = site.get(run), whole("step", step)
            up = link("tree", run=source.name, step=at, tree=tree, node=node)
            with frame(Crumb(f"pictures of {tree}", source, at, up, trail=((tree or "tree", up),))):
                await shown(lambda: _draw(source, at, tree, whole("node", node)))

        await paged(body)


def find(source: RunSource, step: int | None, id: str) -> Tree | None:
    """The tree of that name in a step; the first where none is named."""
    for at, folder in parts(source.forests):
        if at == step:
            return next((t for t in read_trees(folder) if not id or t.id == id), None)
    return None


def has_pictures(tree: Tree) -> bool:
    """Whether any leaf shows some."""
    return any(frames(tree, leaf) for leaf in tree.leaves()[:1])


async def _draw(source: RunSource, step: int | None, id: str, node: int | None) -> None:
    tree = await asyncio.to_thread(find, source, step, id)
    if tree is None or not has_pictures(tree):
        says("this tree holds no latents, so there is nothing to show as pictures; its tokens are on the tree's page")
        return
    best = max(tree.leaves(), key=lambda leaf: leaf.scores.get("reward", float("-inf")))
    chosen = tree[node] if node is not None and node in tree.nodes else best
    heading(f"{len(tree.leaves())} images; each node shows the latent that it ends with, leaves their outcome")
    ui.html(tree_svg(tree, chosen.id), sanitize=False)
    heading(f"The steps to node {chosen.id}")
    ui.html(strip_svg(frames(tree, chosen)), sanitize=False)
    with ui.element("div").classes("bar"):
        for leaf in tree.leaves():
            ui.link(f"leaf {leaf.id}", link("images", run=source.name, step=step, tree=tree.id, node=leaf.id))
