"""Trees of steps for a process reward model, and their compression: two steps in a row as one (HRM + HNC, arXiv
2503.13551).

A block is a step, or two that were made one; its value is the share of right leaves below it. Compression takes a child
away from a node with many, and puts it beside that node, with the node's step and its own as one: a label of a step
that was mended, and other counts for what it was taken from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from rolltree.tree import Node, Tree
from rolltree.tree.steps import solved


@dataclass(eq=False)
class StepRun:
    """A node: its text, and what is right of the leaves below it where it is a leaf itself."""

    text: str = ""
    right: int = 0
    """Right leaves, of `leaves`, that end right here."""
    leaves: int = 0
    steps: int = 1
    """How many steps stand in it."""
    children: list[StepRun] = field(default_factory=list["StepRun"])

    def counts(self) -> tuple[int, int]:
        """Right leaves and all leaves here and below."""
        below = [child.counts() for child in self.children]
        return self.right + sum(r for r, _ in below), self.leaves + sum(n for _, n in below)

    @property
    def value(self) -> float:
        """Share of right leaves."""
        right, leaves = self.counts()
        return right / leaves if leaves else 0.0

    def paths(self) -> Iterator[list[StepRun]]:
        """Every way from below here to a leaf."""
        for child in self.children:
            if child.leaves:
                yield [child]
            for path in child.paths():
                yield [child, *path]


def blocks(tree: Tree, decode: Callable[[Sequence[int]], str]) -> StepRun | None:
    """The judged part of a tree as blocks below its prompt; None where an environment speaks, or nobody judged."""
    if any(node.role == "env" for node in tree):
        return None
    root = _block(tree, tree.root, decode)
    return root if root is not None and root.children else None


def _block(tree: Tree, node: Node, decode: Callable[[Sequence[int]], str]) -> StepRun | None:
    if node.status in ("pruned", "failed"):
        return None
    text = decode(node.actions.tolist()) if node.role == "policy" else ""
    children = [b for b in (_block(tree, child, decode) for child in tree.children(node)) if b is not None]
    judged = node.is_leaf and node.status == "done" and "reward" in node.scores
    if not children and not judged:
        return None
    return StepRun(text, int(judged and solved(node)), int(judged), children=children)


def compressed(root: StepRun, rng: Random, least: int = 4, chance: float = 0.5) -> tuple[StepRun, int]:
    """A copy in which nodes with `least` children or more gave one of them away, and how many did.

    Of a node's children each is taken with `chance`, the first hit alone. A child of the prompt's own children has
    nowhere to go above them, so only nodes below the prompt give (the card's grandparent, reconstructed).
    """
    out = _copy(root)
    moved = 0
    below = [(out, child) for child in out.children]
    while below:
        above, node = below.pop(0)
        # What is moved beside a node is not walked again.
        below += [(node, child) for child in node.children]
        taken = next((c for c in node.children if rng.random() < chance), None) if len(node.children) >= least else None
        if taken is not None:
            node.children.remove(taken)
            below = [(a, b) for a, b in below if b is not taken]
            above.children.append(
                StepRun(node.text + taken.text, taken.right, taken.leaves, node.steps + taken.steps, taken.children)
            )
            below += [(above.children[-1], child) for child in taken.children]
            moved += 1
    return out, moved


def _copy(block: StepRun) -> StepRun:
    return StepRun(block.text, block.right, block.leaves, block.steps, [_copy(child) for child in block.children])
