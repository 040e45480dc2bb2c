"""Trees in the terminal: `rolltree view RUN --tui`, for a machine that is reached by SSH alone.

One tree of folders on the left (steps, prompts, nodes), read as they are opened; the path to the chosen node and its
facts on the right. It draws what the pages draw: the same strips, colours and facts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Footer, Header, Static
from textual.widgets import Tree as Folders
from textual.widgets.tree import TreeNode

from rolltree.analysis.source import RunSource, nothing
from rolltree.analysis.text import pieces_of
from rolltree.errors import RolltreeError
from rolltree.view.colours import COLOURINGS, Colouring
from rolltree.view.model import excerpts, node_facts, path_strip
from rolltree.view.outline import Outline, outline
from rolltree.view.prompts import prompts
from rolltree.view.strip import Strip
from rolltree.visible import visible

MOST = 200
"""Prompts of a step and branches of a node that are listed."""


@dataclass(frozen=True)
class AtStep:
    """A saved step of a source."""

    source: RunSource
    step: int | None


@dataclass(frozen=True)
class AtNode:
    """A node of a tree, by its row."""

    source: RunSource
    step: int | None
    tree: Outline
    row: int


class TreeApp(App[None]):
    """The program; `sources` as the viewer opens them."""

    CSS = """
    #folders { width: 45%; min-width: 28; }
    #side { width: 1fr; padding: 0 1; border-left: solid $primary; }
    #path { margin-bottom: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("c", "colour", "next colouring"), ("q", "quit", "leave"), ("d", "dark", "light or dark"),
    ]  # fmt: skip
    TITLE = "Rolltree"

    def __init__(self, sources: Sequence[RunSource]) -> None:
        super().__init__()
        self.sources = sources
        self.colour: Colouring = "reward"
        self.at: AtNode | None = None

    def compose(self) -> ComposeResult:
        """The parts of the screen."""
        yield Header()
        with Horizontal():
            folders: Folders[Any] = Folders("runs", id="folders")
            folders.show_root = False
            yield folders
            with VerticalScroll(id="side"):
                yield Static("Choose a node: arrows move, Enter or space opens.", id="path", markup=False)
                yield Static("", id="facts", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """List the sources with their steps, the newest first."""
        folders = self._folders()
        for source in self.sources:
            place = folders.root.add(Text(visible(source.name)), expand=True)
            try:
                steps = source.steps()
            except RolltreeError as error:
                place.add_leaf(Text(visible(str(error))))
                continue
            for step in reversed(steps):
                place.add(Text("rollouts" if step is None else f"step {step}"), AtStep(source, step))
            if not steps:
                place.add_leaf(Text(nothing(source)))
        folders.cursor_line = 0
        folders.focus()

    def on_tree_node_expanded(self, event: Folders.NodeExpanded[Any]) -> None:
        """Read what a folder holds when it is first opened."""
        node = event.node
        if node.children or node.data is None:
            return
        try:
            self._fill(node)
        except (RolltreeError, OSError) as error:
            node.add_leaf(Text("cannot be read", "dim"))
            self.query_one("#path", Static).update(Text(visible(str(error))))

    def on_tree_node_highlighted(self, event: Folders.NodeHighlighted[Any]) -> None:
        """Show the node the cursor stands on."""
        if isinstance(event.node.data, AtNode):
            self.at = event.node.data
            self._show()

    def action_colour(self) -> None:
        """Colour tokens by the next quantity."""
        names = list(COLOURINGS)
        self.colour = names[(names.index(self.colour) + 1) % len(names)]
        self._show()

    def action_dark(self) -> None:
        """Change between light and dark."""
        self.theme = "textual-light" if self.theme == "textual-dark" else "textual-dark"

    def _folders(self) -> Folders[Any]:
        return self.query_one("#folders", Folders)

    def _fill(self, node: TreeNode[Any]) -> None:
        at = node.data
        if isinstance(at, AtStep):
            archive = at.source.archive(at.step)
            found = prompts(archive, pieces_of(at.source), sort="reward_std", descending=True, size=MOST)
            for row in found.rows:
                numbers = f"{row.numbers['reward']:.2f} of {row.numbers['leaves']:.0f}"
                label = Text.assemble((numbers, "bold"), " ", _short(row.text, 60))
                node.add(label, AtNode(at.source, at.step, outline(archive, row.tree), 0))
            if found.total > len(found.rows):
                node.add_leaf(Text(f"… {found.total - len(found.rows):,} more: rolltree view in a browser", "dim"))
        elif isinstance(at, AtNode):
            words = excerpts(at.tree, pieces_of(at.source))
            rows = at.tree.children(at.row)
            for row in rows[:MOST]:
                self._branch(node, AtNode(at.source, at.step, at.tree, row), words(row))
            if len(rows) > MOST:
                node.add_leaf(Text(f"… {len(rows) - MOST:,} more", "dim"))

    def _branch(self, above: TreeNode[Any], at: AtNode, words: str) -> None:
        tree, row = at.tree, at.row
        value = tree.rewards[row]
        many = int(tree.leaf_count[row])
        fact = "" if math.isnan(value) else f"{value:.2f}" + (f" of {many}" if many > 1 else "")
        mark = "" if not tree.is_leaf[row] else tree.word("finish", row) or tree.word("status", row)
        label = Text.assemble((fact, "bold"), " ", _short(words, 40), " ", (mark, "dim"))
        above.add(label, at, allow_expand=not tree.is_leaf[row])

    def _show(self) -> None:
        if self.at is None:
            return
        at = self.at
        try:
            strip, found = path_strip(at.tree, at.tree.path(at.row), pieces_of(at.source), self.colour)
        except (RolltreeError, OSError) as error:
            self.query_one("#path", Static).update(Text(visible(str(error))))
            return
        self.sub_title = f"{at.tree.id} · coloured by {self.colour}"
        self.query_one("#path", Static).update(painted(strip))
        facts = Text()
        for name, value in node_facts(at.tree, at.row, found[-1]):
            facts.append(f"{name}: ", "dim")
            facts.append(f"{visible(value)}\n")
        self.query_one("#facts", Static).update(facts)


def painted(strip: Strip) -> Text:
    """The tokens of a path on their colours, under what the colours mean."""
    out = Text(COLOURINGS[strip.scale.colouring] + "\n", "dim")
    if strip.note:
        out.append(f"{strip.note}\n", "dim italic")
    for run in strip.runs:
        out.append(f"\n{visible(run.title)}\n", "dim")
        for text, shade in zip(run.texts, run.shades, strict=True):
            style = "" if shade < 0 else f"{strip.scale.inks[shade]} on {strip.scale.palette[shade]}"
            out.append(visible(text).replace("\n", "⏎"), style)
        out.append("\n")
    return out


def _short(text: str, most: int) -> str:
    line = visible(text).replace("\n", "⏎")
    return line if len(line) <= most else f"{line[: most - 1]}…"
