"""A tree: its icicle, the tokens of a path, the decisions with their numbers, and the facts of the chosen node."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

import numpy as np
from nicegui import ui
from nicegui.element import Element
from nicegui.events import KeyEventArguments

from rolltree.analysis.source import RunSource
from rolltree.analysis.text import Pieces, pieces_of
from rolltree.analysis.whatif_saved import BETWEEN
from rolltree.view.colours import COLOURINGS, Colouring, colouring_of
from rolltree.view.findings import ShownFinding, findings
from rolltree.view.fork import other_leaf
from rolltree.view.icicle import Icicle, icicle
from rolltree.view.links import link, whole
from rolltree.view.model import excerpts, node_facts, path_strip
from rolltree.view.outline import Outline, outline
from rolltree.view.pages.findings import draw_finding
from rolltree.view.pages.frame import Crumb, Site, frame, paged, shown
from rolltree.view.pages.parts import Picture, Tokens, Words, button, facts, heading, legend, marks_legend, says
from rolltree.view.pages.roles import draw_in_sight, draw_node_roles, draw_tree_roles, told_by
from rolltree.view.pages.tree_head import draw_tree_head, tree_head
from rolltree.view.prompts import by_spread, neighbours
from rolltree.view.roles import RoleTree, asked_about, in_sight, role_trees
from rolltree.view.rows import events_of
from rolltree.view.words import DECISIONS, EventText, event_text

MOST_EVENTS = 250
KEYS = (
    ("↑  ↓", "parent, first child"), ("←  →", "siblings"), ("Home  End", "root, best leaf"), ("c", "next colouring"),
    ("z", "zoom to the chosen node, or out"), ("p  n", "previous and next tree"), ("x", "two leaves side by side"),
)  # fmt: skip


@dataclass(frozen=True)
class TreeAsked:
    """What the address asks for."""

    tree: str
    node: int | None
    root: int | None
    colour: str
    turns: bool


@dataclass
class Looking:
    """What a browser tab looks at in one tree."""

    source: RunSource
    step: int | None
    tree: Outline
    pieces: Pieces
    colour: Colouring
    row: int
    root: int = 0
    turns: bool = False
    """Whether every turn of a chain is a rectangle of its own."""
    every: bool = False
    """Whether bookkeeping events are shown too."""
    told: list[EventText] = field(default_factory=list[EventText])
    found: list[tuple[ShownFinding, list[int]]] = field(default_factory=list[tuple[ShownFinding, list[int]]])
    roles: list[RoleTree] = field(default_factory=list[RoleTree])
    """All side trees of the forest."""

    def address(self, page: str = "tree", **more: str | int | None) -> str:
        """The deep link to this."""
        places: dict[str, str | int | None] = {"run": self.source.name, "step": self.step, "tree": self.tree.id}
        if page == "tree":
            places |= {"node": int(self.tree.ids[self.row]), "colour": self.colour}
            places |= {"root": int(self.tree.ids[self.root]) if self.root else None}
            places |= {"turns": "each" if self.turns else None}
        return link(page, **{**places, **more})


def add(site: Site) -> None:
    """Register the page."""

    @ui.page("/tree", response_timeout=300)
    async def page(  # pyright: ignore[reportUnusedFunction]
        run: str = "", step: str = "", tree: str = "", node: str = "", colour: str = "", root: str = "",
        turns: str = "",
    ) -> None:  # fmt: skip
        async def body() -> None:
            source, at = site.get(run), whole("step", step)
            up = link("step", run=source.name, step=at)
            here = link("tree", run=source.name, step=at, tree=tree)
            trail = ((f"step {at}" if at is not None else "the forest", up), (tree or "tree", here))
            with frame(Crumb(f"{tree} of {source.name}", source, at, up, KEYS, trail)):
                asked = TreeAsked(tree, whole("node", node), whole("root", root), colour, turns == "each")
                await shown(lambda: _draw(source, at, asked))

        await paged(body)


def _open(source: RunSource, step: int | None, asked: TreeAsked) -> Looking:
    archive = source.archive(step)
    tree = outline(archive, asked.tree or by_spread(archive)[0])
    node, root = (None if p is None else tree.row(p) for p in (asked.node, asked.root))
    colour = colouring_of(asked.colour) if asked.colour or "reward" in tree.colourings else "author"
    looking = Looking(source, step, tree, pieces_of(source), colour, best(tree) if node is None else node)
    looking.turns = asked.turns
    looking.root = root if root is not None and looking.row in range(root, int(tree.end[root])) else 0
    looking.told = [event_text(e) for e in events_of(archive, tree.index)]
    looking.roles = role_trees(archive)
    looking.found = findings(source).of_tree(step, tree.id)
    return looking


def best(tree: Outline) -> int:
    """Row of the leaf with the highest outcome; the first leaf where none has one."""
    return int(tree.leaf[np.argmax(np.nan_to_num(tree.rewards[tree.leaf], nan=-np.inf))])


async def _draw(source: RunSource, step: int | None, asked: TreeAsked) -> None:
    look = await asyncio.to_thread(_open, source, step, asked)
    tree = look.tree
    known = await asyncio.to_thread(tree_head, tree, look.pieces, step)
    before, after = await asyncio.to_thread(neighbours, tree.archive, tree.id)
    draw_tree_head(known, tree.id)
    draw_tree_roles(look.roles, tree.id, look.address)
    with ui.element("div").classes("bar"):
        bar = ui.element("div").classes("bar colours")
        if before is not None:
            ui.link(
                "← previous tree", link("tree", run=source.name, step=step, tree=before, colour=look.colour)
            ).classes("previous-tree")
        if after is not None:
            ui.link("next tree →", link("tree", run=source.name, step=step, tree=after, colour=look.colour)).classes(
                "next-tree"
            )
        if known.agents:
            ui.link("calls", link("calls", run=source.name, step=step, tree=tree.id)).classes("calls-link")
        if source.path.is_dir() and tree.latents:
            ui.link("as pictures", look.address("images", node=int(tree.ids[look.row]))).classes("as-pictures")
    if look.pieces.note:
        says(look.pieces.note)
    await View(look, bar).start()


class View:
    """The living part of the page: redrawn when another node, colouring or root is chosen."""

    def __init__(self, look: Looking, bar: Element) -> None:
        self.look, self.bar = look, bar
        self.picture: Picture | None = None
        self.busy = asyncio.Lock()

    async def start(self) -> None:
        """Draw everything once and listen to the keys."""
        with self.bar:
            self.buttons = {c: button(c, self._colour(c), name=f"colour-{c}") for c in COLOURINGS}
            for colouring, made in self.buttons.items():
                if colouring not in self.look.tree.colourings:
                    made.props('disabled title="nothing in this tree has data for it"')
            self.turns = button("", self._turns, name="turns")
            self.out = button("whole tree", lambda: self.pick("f"), name="zoom-out")
        self.legend = ui.element("div")
        self.place = ui.element("div").classes("picture")
        with ui.element("div").classes("halves"):
            self.path = ui.element("div")
            self.side = ui.element("div")
        ui.keyboard(self.press, ignore=["input", "select", "textarea"])
        await self.draw()

    async def draw(self) -> None:
        """Show what is looked at now."""
        look = self.look
        async with self.busy:
            drawn = await asyncio.to_thread(self._icicle)
            rows = look.tree.path(look.row)
            strip, records = await asyncio.to_thread(path_strip, look.tree, rows, look.pieces, look.colour)
            self._draw_picture(drawn)
            self.path.clear()
            with self.path:
                heading(f"The path to node {int(look.tree.ids[look.row])}: {strip.tokens:,} tokens")
                if strip.note:
                    ui.label(strip.note).classes("legend")
                if strip.hidden:
                    says(f"{strip.hidden:,} tokens in the middle are left out; choose a node nearer to the root")
                Tokens(strip, int(look.tree.ids[look.row]), self.pick_node)
            self.side.clear()
            with self.side:
                heading(f"Node {int(look.tree.ids[look.row])}", live=True)
                facts(node_facts(look.tree, look.row, records[-1]))
                with ui.element("div").classes("bar"):
                    self._draw_links()
                here = int(look.tree.ids[look.row])
                draw_in_sight(in_sight(dict(records[-1].notes)), self.pick_node)
                about = asked_about(look.roles, look.tree.id, here)
                said = await asyncio.to_thread(told_by, look.tree.archive, about, look.pieces)
                draw_node_roles(said, len(about), look.address)
                for finding, _ in look.found:
                    draw_finding(look.source, finding, links=False)
                self._draw_events()

    def _icicle(self) -> Icicle:
        look = self.look
        return icicle(
            look.tree, look.colour, root=look.root, selected=look.row, turns=look.turns,
            excerpt=excerpts(look.tree, look.pieces),
        )  # fmt: skip

    def _draw_picture(self, drawn: Icicle) -> None:
        look = self.look
        self.drawn = drawn
        selected = drawn.holder(int(look.tree.ids[look.row]))
        if self.picture is None:
            with self.place:
                self.picture = Picture(drawn, selected, self.pick)
        else:
            self.picture.show(drawn, selected)
        self.legend.clear()
        with self.legend:
            said = (
                f"width: leaves; {drawn.folded:,} of {drawn.nodes:,} nodes are folded"
                if drawn.folded
                else "width: leaves"
            )
            legend(drawn.scale, said)
            marks_legend(drawn)
        for colouring, made in self.buttons.items():
            on = colouring == look.colour
            made.classes(add="on" if on else "", remove="" if on else "on")
            made.props(f'aria-pressed="{"true" if on else "false"}"')
        self.turns.clear()
        with self.turns:
            Words("collapse turns" if look.turns else "every turn")
        self.out.set_visibility(bool(look.root))

    def _draw_links(self) -> None:
        look = self.look
        ui.link("under several credits", look.address("lens", node=int(look.tree.ids[look.row]))).classes("lens-link")
        if BETWEEN not in look.source.name:
            ui.link("what if", look.address("whatif", node=int(look.tree.ids[look.row]))).classes("whatif-link")
        if look.tree.is_leaf[look.row]:
            ui.link("compare with another leaf", look.address("pair", a=int(look.tree.ids[look.row]))).classes(
                "pair-link"
            )

    def _draw_events(self) -> None:
        look = self.look
        here = int(look.tree.ids[look.row])
        mine = [t for t in look.told if t.node == here or here in t.children]
        rest = [t for t in look.told if t not in mine and (look.every or t.kind in DECISIONS)]
        heading(f"Decisions at node {here}")
        self._list(mine, "nothing was decided here", "events here")
        heading("Decisions in this tree")
        button("only decisions" if look.every else "all events", self._toggle, name="every")
        self._list(rest[:MOST_EVENTS], "no decisions were recorded", "events there")
        if len(rest) > MOST_EVENTS:
            says(f"{len(rest) - MOST_EVENTS:,} more; choose a node to see its own")

    def _list(self, events: list[EventText], nothing: str, name: str) -> None:
        if not events:
            says(nothing)
            return
        with ui.element("ul").classes(name):
            for event in events:
                about = [n for n in (event.node, *event.children) if n is not None]
                keys = list(dict.fromkeys(key for n in about[:40] if (key := self.drawn.holder(n))))
                with ui.element("li").props('tabindex="0"') as item:
                    for kind, marked in (("mouseenter", keys), ("focusin", keys), ("mouseleave", []), ("focusout", [])):
                        item.on(kind, js_handler=f"() => document.querySelector('.icicle')?.mark({json.dumps(marked)})")
                    ui.label(event.sentence)
                    if event.numbers:
                        ui.label(" · ".join(f"{k} {v}" for k, v in event.numbers)).classes("numbers")
                    for node in ([] if event.node is None else [event.node]) + list(event.children[:16]):
                        with ui.element("button").on("click", lambda _, n=node: self.pick_node(n)):
                            Words(f"node {node}")

    def _colour(self, colouring: Colouring):
        async def act() -> None:
            self.look.colour = colouring
            await self.changed()

        return act

    async def _turns(self) -> None:
        self.look.turns = not self.look.turns
        await self.changed()

    async def _toggle(self) -> None:
        self.look.every = not self.look.every
        await self.draw()

    async def pick(self, key: str) -> None:
        """Choose a rectangle: a node, or folded branches, which opens them."""
        if key.startswith("f"):
            self.look.root = self.look.tree.row(int(key[1:])) if key[1:] else 0
            if self.look.row not in range(self.look.root, int(self.look.tree.end[self.look.root])):
                self.look.row = self.look.root
            await self.changed()
        else:
            await self.pick_node(int(key[1:]))

    async def pick_node(self, node: int) -> None:
        """Choose a node by its id; a node that is no longer there (a removed span) is ignored."""
        found: list[int] = (self.look.tree.ids == node).nonzero()[0].tolist()
        if found:
            await self.go(found[0])

    async def go(self, row: int) -> None:
        """Choose a row, leaving the zoom when it lies outside."""
        look = self.look
        look.row = row
        if not look.root <= row < int(look.tree.end[look.root]):
            look.root = 0
        await self.changed()

    async def changed(self) -> None:
        """Draw, and let the address say it."""
        ui.navigate.history.replace(self.look.address())
        await self.draw()

    async def press(self, event: KeyEventArguments) -> None:
        """The keys of this page."""
        if not event.action.keydown or event.modifiers.ctrl or event.modifiers.meta or event.modifiers.alt:
            return
        look, tree, name = self.look, self.look.tree, event.key.name
        if name in ("ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End"):
            row = neighbour(tree, look.row, str(name))
            if row is not None:
                await self.go(row)
        elif name == "c":
            names: list[Colouring] = [c for c in COLOURINGS if c in tree.colourings]
            await self._colour(names[(names.index(look.colour) + 1) % len(names) if look.colour in names else 0])()
        elif name == "z":
            look.root = 0 if look.root == look.row else look.row
            await self.changed()
        elif name in ("p", "n"):
            ui.run_javascript(f"document.querySelector('a.{'previous' if name == 'p' else 'next'}-tree')?.click()")
        elif name == "x" and other_leaf(tree, look.row) is not None:
            ui.navigate.to(look.address("pair", a=int(tree.ids[look.row])))


def neighbour(tree: Outline, row: int, key: str) -> int | None:
    """The row an arrow leads to; None where there is nothing in that direction."""
    above = int(tree.parent[row])
    if key == "ArrowUp":
        return above if above >= 0 else None
    if key == "ArrowDown":
        return None if tree.is_leaf[row] else row + 1
    if key == "Home":
        return 0
    if key == "End":
        return best(tree)
    if above < 0:
        return None
    siblings = tree.children(above)
    at = siblings.index(row) + (1 if key == "ArrowRight" else -1)
    return siblings[at] if 0 <= at < len(siblings) else None
