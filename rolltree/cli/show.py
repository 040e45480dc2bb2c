"""A tree in the terminal: who wrote what, why it ended, what it was worth."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text
from rich.tree import Tree as Branch

from rolltree.tree import Node, Tree
from rolltree.tree.node import Array
from rolltree.visible import shortened, visible

if TYPE_CHECKING:
    from rolltree.training.prompt import TokenizedPrompt

_STYLE = {"prompt": "dim", "policy": "", "env": "cyan", "hint": "magenta", "splice": "yellow", "template": "dim"}
_END = {"done": "green", "pruned": "yellow", "failed": "red", "paused": "blue", "open": "dim"}
_TOLD = ("fork", "prune", "fail", "retry", "backfill", "allocate", "select", "drop", "splice", "graft", "budget")


def show_tree(tree: Tree, decode: Callable[[Array], str], console: Console, *, width: int = 400) -> None:
    """Print a tree: one line from fork to fork, coloured by who wrote it, and the decisions with their reasons."""
    tokens = sum(len(node) for node in tree)
    title = f"{tree.id}   {len(tree)} nodes, {len(tree.leaves())} leaves, {tokens} tokens"
    console.print(Text(visible(title), style="bold"))
    root = Branch("", guide_style="dim", hide_root=True)
    waiting = [(tree.root, root)]
    while waiting:
        node, above = waiting.pop()
        run = [node]
        while len(run[-1].children) == 1:
            run.append(tree[run[-1].children[0]])
        here = above.add(_line(run, decode, width))
        waiting.extend((child, here) for child in reversed(tree.children(run[-1])))
    console.print(root)
    for event in tree.events:
        if event.kind in _TOLD:
            where = "" if event.node is None else f" at node {event.node}"
            console.print(Text(visible(f"  {event.kind}{where}: {shortened(event.why)}"), style="dim"))


HEAD, TAIL = 48, 24
"""Tokens of a long prompt that are shown at its ends."""
_TOKENS = ("default on grey23", "default on grey35")


def show_prompt(prompt: TokenizedPrompt, console: Console, *, full: bool = False) -> None:
    """The prompt as the model sees it: one colour after the other, special tokens in a colour of their own."""
    many = len(prompt.tokens)
    console.print(Text(f"the first prompt as the model sees it: {many} tokens of {prompt.item}", style="bold"))
    line = Text()
    for at, token in enumerate(prompt.tokens):
        if not full and many > HEAD + TAIL and HEAD <= at < many - TAIL:
            if at == HEAD:
                line.append(f"  … {many - HEAD - TAIL} more (--full-prompt) …  ", style="dim")
            continue
        shown = token.text.replace("\n", "⏎")
        line.append(shown, style="bold yellow" if token.special else _TOKENS[at % 2])
        line.append("|", style="dim")
    console.print(line, soft_wrap=full)


def _line(run: list[Node], decode: Callable[[Array], str], width: int) -> Text:
    """The text of a run of nodes, then how it ended; line breaks are shown as what they are."""
    line = Text(f"{run[-1].id} ", style="dim")
    for node in run:
        text = visible(decode(node.actions)).replace("\n", "⏎")
        if len(text) > width:
            text = text[: width // 2] + " … " + text[-width // 2 :]
        line.append(text, style="magenta underline" if node.forced else _STYLE[node.role])
    last = run[-1]
    if last.is_leaf:
        line.append(f"  {last.finish or last.status}", style=_END[last.status])
    if "reward" in last.scores:
        value = last.scores["reward"]
        line.append(f"  reward {value:g}", style="bold green" if value > 0 else "bold red")
    return line
