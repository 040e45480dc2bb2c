"""A tree in the terminal: who wrote what, why it ended, what it was worth."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.text import Text
from rich.tree import Tree as Branch

from rolltree.tree import Node, Tree
from rolltree.tree.node import Array

_STYLE = {"prompt": "dim", "policy": "", "env": "cyan", "hint": "magenta", "splice": "yellow", "template": "dim"}
_END = {"done": "green", "pruned": "yellow", "failed": "red", "paused": "blue", "open": "dim"}


def show_tree(tree: Tree, decode: Callable[[Array], str], console: Console, *, width: int = 160) -> None:
    """Print a tree: one line a node, with the reason it stands where it is."""
    root = Branch(_line(tree.root, decode, width), guide_style="dim")
    at = {tree.root.id: root}
    for node in tree:
        if node.parent is not None:
            at[node.id] = at[node.parent].add(_line(node, decode, width))
    title = f"{tree.id}   {len(tree)} nodes, {len(tree.leaves())} leaves, {sum(map(len, tree.nodes.values()))} tokens"
    console.print(Text(title, style="bold"))
    console.print(root)
    for event in tree.events:
        if event.kind in ("fork", "prune", "fail", "backfill", "allocate", "drop", "splice", "graft", "budget"):
            where = "" if event.node is None else f" at node {event.node}"
            console.print(Text(f"  {event.kind}{where}: {event.why}", style="dim"))


def _line(node: Node, decode: Callable[[Array], str], width: int) -> Text:
    """`3 policy│text│ eos reward 1` with control characters shown as what they are."""
    text = decode(node.actions).replace("\n", "⏎")
    if len(text) > width:
        text = text[: width // 2] + " … " + text[-width // 2 :]
    line = Text(f"{node.id} ", style="dim")
    line.append(text, style=_STYLE[node.role])
    if node.forced:
        line.append(" forced", style="magenta")
    if node.is_leaf:
        line.append(f"  {node.finish or node.status}", style=_END[node.status])
    for name in ("reward", "step_reward"):
        if name in node.scores:
            value = node.scores[name]
            line.append(f"  {name} {value:g}", style="bold green" if value > 0 else "bold red")
    return line
