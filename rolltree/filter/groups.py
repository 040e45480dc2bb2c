"""Which groups are trained on: a filter looks at a finished tree and gives a reason to drop it, or none.

Dropping groups whose leaves all have the same outcome and sampling others in their place is DAPO's dynamic sampling
(arXiv 2503.14476, section 3.2): such a group has no gradient under any group-centred credit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from rolltree.tree import Node, Tree


class GroupFilter(Protocol):
    """Judges one tree."""

    def __call__(self, tree: Tree) -> str | None:
        """Why its leaves must not be trained on; None keeps it."""
        ...


@dataclass(frozen=True, slots=True)
class Mixed:
    """Keeps a group whose outcomes differ by more than `spread`; needs at least two live leaves (or attempts)."""

    score: str = "reward"
    spread: float = 1e-9
    of: Literal["leaves", "attempts"] = "leaves"
    """"attempts": all scored nodes of a tree whose inner nodes are answers too."""

    def __call__(self, tree: Tree) -> str | None:
        """Drop groups in which a group-centred credit gives every rollout 0."""
        among = (
            live_leaves(tree) if self.of == "leaves" else [n for n in tree.walk() if n.trainable and n.status == "done"]
        )
        values = [node.scores[self.score] for node in among if self.score in node.scores]
        if len(values) < 2:
            return f"{len(values)} live {self.of}"
        if max(values) - min(values) <= self.spread:
            return f"all outcomes are {values[0]:g}"
        return None


def live_leaves(tree: Tree) -> list[Node]:
    """Leaves that finished with an outcome and have not been dropped."""
    return [
        leaf for leaf in tree.leaves()
        if leaf.status == "done" and "reward" in leaf.scores and not leaf.usage.startswith("dropped")
    ]  # fmt: skip


def drop(tree: Tree, why: str) -> None:
    """Record that none of a tree's leaves will be trained on; leaves that already have a usage keep theirs."""
    for leaf in tree.leaves():
        if not leaf.usage:
            leaf.usage = f"dropped: {why}"
    tree.event("drop", None, why)


def sift(trees: Iterable[Tree], filters: Sequence[GroupFilter]) -> tuple[list[Tree], list[Tree]]:
    """Kept and dropped trees; the first filter with a reason decides."""
    kept: list[Tree] = []
    dropped: list[Tree] = []
    for tree in trees:
        why = next((reason for f in filters if (reason := f(tree)) is not None), None)
        if why is None:
            kept.append(tree)
        else:
            drop(tree, why)
            dropped.append(tree)
    return kept, dropped
