"""Roles on the page of a tree: who was asked about it and what was said, and nodes that were read to write another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from nicegui import ui

from rolltree.analysis.text import Pieces
from rolltree.tree.store.archive import Archive
from rolltree.view.pages.parts import Words, heading, says
from rolltree.view.roles import RoleTree, answers, asked_about, summary

MOST = 24
"""Side trees whose answers are listed at a node."""
Told = tuple[RoleTree, list[str]]


def told_by(archive: Archive, trees: Sequence[RoleTree], pieces: Pieces) -> list[Told]:
    """What some roles said."""
    return [(tree, answers(archive, tree.id, pieces)) for tree in trees[:MOST]]


def draw_tree_roles(trees: Sequence[RoleTree], tree: str, address: Callable[..., str]) -> None:
    """A line above the picture: how often roles were asked about this tree, or what this side tree is about."""
    mine = next((t for t in trees if t.id == tree), None)
    if mine is not None:
        with ui.element("div").classes("bar role-of"):
            Words(f"the role {mine.role} was asked here, about")
            for above, node in mine.about:
                ui.link(f"node {node} of {above}", address(tree=above, node=node))
    if told := summary(asked_about(trees, tree)):
        ui.label(f"roles asked about this tree: {told}").classes("soft roles-asked")


def draw_in_sight(nodes: Sequence[int], pick: Callable[[int], Awaitable[None]]) -> None:
    """References: beside the parent, and no credit goes along them."""
    if nodes:
        with ui.element("div").classes("bar in-sight"):
            Words("written with in sight")
            for node in nodes:
                with ui.element("button").on("click", lambda _, n=node: pick(n)):
                    Words(f"node {node}")


def draw_node_roles(told: Sequence[Told], count: int, address: Callable[..., str]) -> None:
    """What roles said about the chosen node."""
    if not told:
        return
    heading("What roles said about this node")
    with ui.element("ul").classes("roles-said"):
        for tree, said in told:
            with ui.element("li"):
                ui.link(tree.role, address(tree=tree.id, node=None))
                for answer in said or ["nothing"]:
                    ui.label(answer).classes("numbers")
    if count > len(told):
        says(f"{count - len(told):,} more are in the list of this step's trees")
