"""What became of a step's leaves, and numbers about their outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from rolltree.task.solved import is_solved
from rolltree.train.spending import carried
from rolltree.tree import Node, Tree
from rolltree.tree.account import assert_conserved
from rolltree.tree.table import Floats, Table


def settle_fates(table: Table, weights: Floats) -> None:
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


def account_numbers(trees: Iterable[Tree]) -> dict[str, float]:
    """Leaves by usage, in all and per reason, and partial ones. Raises if one was lost or left without a reason."""
    trees = list(trees)
    found = assert_conserved(trees)
    out = {"leaves.submitted": found.leaves, "leaves.trained": found.trained, "leaves.kept": found.kept,
           "leaves.running": found.running, "leaves.dropped": sum(found.dropped.values())}  # fmt: skip
    out |= {f"leaves.dropped: {reason}": count for reason, count in sorted(found.dropped.items())}
    return {name: float(count) for name, count in out.items()} | carried(trees)


def outcomes(trees: Iterable[Tree]) -> dict[str, float]:
    """Numbers about the rollouts of a step: outcomes, lengths, groups without a gradient, failures."""
    rewards: list[float] = []
    solved: list[bool] = []
    lengths: list[int] = []
    finishes: Counter[str] = Counter()
    flat = groups = failed = leaves = 0
    for tree in trees:
        of_tree: list[float] = []
        for leaf in tree.leaves():
            leaves += 1
            failed += leaf.status == "failed"
            finishes[leaf.finish or "none"] += 1
            if leaf.status == "done" and "reward" in leaf.scores:
                of_tree.append(leaf.scores.get("outcome", leaf.scores["reward"]))
                solved.append(is_solved(leaf.scores))
                lengths.append(sum(len(n) for n in tree.path(leaf) if n.trainable))
        if of_tree:
            groups += 1
            flat += max(of_tree) - min(of_tree) <= 1e-9
            rewards.extend(of_tree)
    return {
        "reward": float(np.mean(rewards)) if rewards else float("nan"),
        "solved": float(np.mean(solved)) if solved else float("nan"),
        "length": float(np.mean(lengths)) if lengths else float("nan"),
        "flat_groups": flat / groups if groups else float("nan"),
        "failed": float(failed),
        "truncated": finishes["length"] / leaves if leaves else float("nan"),
    }
