"""Credit on one core: 1,000 trees x 64 leaves x 256 actions per estimator, and how it grows.

python benchmarks/credit.py            # prints a table
rows() returns the same as dictionaries.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from rolltree.credit.fold import fold, leaf_weights, write
from rolltree.credit.registry import credits, load_credit
from rolltree.testing.forests import dress
from rolltree.tree import Tree
from rolltree.tree.table import table

FORKED = frozenset({
    "nested", "node_delta", "global_plus_local", "fork_relative", "gigpo", "hgpo", "shared_mean", "sibling",
    "sibling_shaping", "length_calibrated", "himac", "designer_executor", "semi_online", "skill_chain",
})  # fmt: skip
"""Credits that look at the inside of a tree: measured on forked ones. All others are measured on flat groups."""


def per_action(name: str) -> bool:
    """Whether a credit reads an array of every action."""
    return any(need in ("entropy", "logp") or need.partition(":")[0] in ("action", "top", "turn-note")
               for need in load_credit(name).needs) or name in ("hiper", "optimal_baseline")  # fmt: skip


def forest(trees: int, leaves: int, length: int, *, forked: bool = False, arrays: bool = False) -> list[Tree]:
    """Flat groups, or trees with a fork in four after each quarter of the length."""
    rng = np.random.default_rng(0)
    out: list[Tree] = []
    quarter = np.zeros(length // 4 if forked else length, np.int32)
    for i in range(trees):
        tree = Tree(f"t{i}", [0], item=str(i))
        tree[0].state_key = "start"
        tree[0].scores.update(prior=0.5, greedy_reward=0.0, effort=1.0)
        ends = [tree[0]]
        widths = [4, 4, max(leaves // 16, 1), 1] if forked else [leaves]
        for depth, width in enumerate(widths):
            level = int(forked and depth == 0)
            ends = [tree.extend(e, quarter, status="done", level=level) for e in ends for _ in range(width)]
        for number, leaf in enumerate(ends):
            leaf.scores.update(
                reward=float(rng.integers(0, 2)), versus=float(rng.integers(0, 2)), reference=float(number == 0),
                match=1.0, task_reward=1.0,
            )  # fmt: skip
            leaf.notes["answer"] = int(rng.integers(0, 5))
        if arrays:
            for node in tree:
                if node.trainable:
                    dress(node, rng, last=False)
        out.append(tree)
    return out


def seconds(run: Callable[[], Any], repeat: int = 3) -> float:
    """Least of a few runs."""
    best = np.inf
    for _ in range(repeat):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best


def rows(trees: int = 1000, leaves: int = 64, length: int = 256, *, arrays: bool = True) -> list[dict[str, Any]]:
    """Seconds of CPU for the table, each credit, the fold and the write."""
    out: list[dict[str, Any]] = []

    def add(what: str, shape: str, run: Callable[[], Any], repeat: int = 3) -> None:
        out.append({"what": what, "shape": shape, "trees": trees, "leaves": leaves, "length": length,
                    "seconds": seconds(run, repeat)})  # fmt: skip

    plain = sorted(name for name in credits() if name not in FORKED and not per_action(name))
    for shape, names in (("flat", plain), ("forked", ["grpo", *sorted(FORKED)])):
        grown = forest(trees, leaves, length, forked=shape == "forked")
        add("table", shape, lambda grown=grown: warm(table(grown)))
        tab = warm(table(grown))
        for name in names:
            credit = load_credit(name)
            add(name, shape, lambda credit=credit, tab=tab: credit(tab))
        advantage = load_credit("grpo")(tab)
        weights = leaf_weights(tab, "token")
        add("fold", shape, lambda tab=tab, a=advantage, w=weights: fold(tab, a, w))
        folded = fold(tab, advantage, weights)
        add("write", shape, lambda tab=tab, f=folded: write(tab, f))
    if arrays:
        # A quarter of the trees: every action carries five float arrays here. Scaled up in the table's own rows.
        part = max(trees // 4, 1)
        tab = warm(table(forest(part, leaves, length, arrays=True)))
        for name in sorted(filter(per_action, credits())):
            credit = load_credit(name)
            out.append({"what": name, "shape": "flat", "trees": part, "leaves": leaves, "length": length,
                        "seconds": seconds(lambda credit=credit: credit(tab), 1)})  # fmt: skip
    return out


def warm(tab: Any) -> Any:
    """A table with its lazy columns made, as training uses it."""
    _ = tab.live, tab.reward, tab.loss_mask, tab.loss_tokens, tab.levels, tab.start
    return tab


def main() -> None:
    for size in (250, 1000):
        for row in rows(trees=size, arrays=size == 1000):
            print("{what:24s} {shape:7s} {trees:5d} x {leaves} x {length}  {seconds:8.3f} s".format(**row))


if __name__ == "__main__":
    main()
