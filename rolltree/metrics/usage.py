"""What became of a step's leaves: written on each, and counted."""

from __future__ import annotations

from collections.abc import Iterable

from rolltree.tree import Node, Tree
from rolltree.tree.account import assert_conserved
from rolltree.tree.table import Floats, Table


def settle_usage(table: Table, weights: Floats) -> None:
    """Write what became of each leaf of the credited trees; `weights` is 0 for leaves that did not teach."""
    for row, weight, live in zip(table.leaf, weights, table.live, strict=True):
        leaf = table.nodes[row]
        if leaf.usage or leaf.status in ("open", "paused"):
            continue
        if weight > 0:
            leaf.usage = "trained"
        else:
            leaf.usage = "dropped: nothing to teach" if live else f"dropped: {why_not_live(leaf)}"


def settle_rest(trees: Iterable[Tree]) -> None:
    """Give leaves of trees that were not credited their reason."""
    for tree in trees:
        for leaf in tree.leaves():
            if not leaf.usage and leaf.status not in ("open", "paused"):
                leaf.usage = f"dropped: {why_not_live(leaf)}"


def why_not_live(leaf: Node) -> str:
    """Why a leaf cannot teach."""
    if leaf.status in ("failed", "pruned"):
        return leaf.status
    return "no outcome" if "reward" not in leaf.scores else "not used"


def usage(trees: Iterable[Tree]) -> dict[str, float]:
    """Leaves by what became of them, in all and per reason. Raises if one was lost or left without a reason."""
    found = assert_conserved(trees)
    out = {"rollout/submitted": found.leaves, "rollout/trained": found.trained, "rollout/kept": found.kept,
           "rollout/running": found.running, "rollout/dropped": sum(found.dropped.values())}  # fmt: skip
    out |= {f"rollout/dropped/{reason}": count for reason, count in sorted(found.dropped.items())}
    return {name: float(count) for name, count in out.items()}
