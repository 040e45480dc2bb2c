"""Contract of a credit: what every one must do, on forests that carry everything. Run it on your own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rolltree.credit.advantage import Advantage, Credit, CreditError
from rolltree.credit.fold import Folded, fold, leaf_weights
from rolltree.credit.needs import check_needs
from rolltree.testing.forests import episodes, plans
from rolltree.tree import Node, Tree
from rolltree.tree.table import Table, table

Grow = Callable[[np.random.Generator], list[Tree]]


@dataclass(frozen=True, slots=True)
class Claims:
    """What a credit says of itself beyond the contract; None claims nothing."""

    shift: bool = False
    """Adding a constant to all outcomes changes nothing."""
    scale: Literal["linear", "free"] | None = None
    """Multiplying all outcomes multiplies the advantages, or does not change them (up to its eps)."""
    zero_sum: Literal["leaves", "actions"] | None = None
    """Advantages of a tree's leaves, or of all its actions counted per leaf, sum to zero."""
    bound: float = 30.0
    """Largest |advantage| on 0/1 outcomes."""
    per_tree: bool = True
    """Other trees of the step do not matter."""


def check_credit(credit: Credit, claims: Claims | None = None, *, grow: Grow | None = None, seeds: int = 2) -> None:
    """Raise AssertionError with a sentence where a credit breaks the contract.

    Finite and of the table's sizes; pure; blind to the order of siblings and of trees; blind to failed leaves, which
    never teach; zero where outcomes cannot be told apart is not demanded; a NaN outcome is refused by node name; empty
    forests pass; and what `claims` adds.
    """
    says = claims or Claims()
    make = grow or (plans if "level:1" in credit.needs else episodes)
    for seed in range(seeds):
        trees = make(np.random.default_rng(seed))
        tab = table(trees)
        check_needs(tab, credit)
        before = copy.deepcopy([t.nodes for t in trees])
        base = _folded(tab, credit)
        _sizes(tab, credit(tab), says)
        assert _same_nodes(before, trees), "the credit changed the forest; it must only read it"
        _alike(base, _folded(table(trees), credit), tab, tab, "computed twice")
        _order(trees, tab, base, credit)
        _failed(trees, tab, base, credit)
        _nan(make(np.random.default_rng(seed)), credit)
        _claims(make, seed, credit, says)
    credit(table([]))


def _folded(tab: Table, credit: Credit) -> Folded:
    advantage = credit(tab)
    return fold(tab, advantage, _unit(tab, advantage))


def _unit(tab: Table, advantage: Advantage) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    # One per counted leaf: comparisons must not move when averaging does.
    return (leaf_weights(tab, "token", counted=advantage.counted) > 0).astype(np.float64)


def _sizes(tab: Table, advantage: Advantage, says: Claims) -> None:
    wanted = {"leaf": len(tab.leaf), "node": len(tab.nodes), "action": tab.actions, "factor": tab.actions}
    for name, size in wanted.items():
        values = getattr(advantage, name)
        if values is not None:
            assert values.shape == (size,), f"the {name} term has shape {values.shape}, the table needs ({size},)"
            assert np.isfinite(values).all(), f"the {name} term is not finite"
            assert np.abs(values).max(initial=0) <= says.bound, f"the {name} term exceeds {says.bound} on 0/1 outcomes"


def _order(trees: Sequence[Tree], tab: Table, base: Folded, credit: Credit) -> None:
    turned = copy.deepcopy(list(trees))[::-1]
    for tree in turned:
        for node in tree.nodes.values():
            node.children.reverse()
    other = table(turned)
    _alike(base, _folded(other, credit), tab, other, "siblings and trees in reverse order")


def _failed(trees: Sequence[Tree], tab: Table, base: Folded, credit: Credit) -> None:
    more = copy.deepcopy(list(trees))
    for tree in more:
        tree.extend(0, [1, 1, 1], status="failed")
        tree.extend(0, [1, 1], status="pruned", scores={"reward": 9.0})
        tree.extend(0, [1, 1], status="done", scores={"reward": 9.0}, usage="dropped: test")
    other = table(more)
    folded = _folded(other, credit)
    _alike(base, folded, tab, other, "with failed, pruned and dropped leaves added")
    dead = np.repeat(other.below(other.live.astype(np.float64)) == 0, other.length)
    assert not folded.weight[dead].any(), "a leaf that failed, was pruned or dropped teaches"


def _nan(trees: list[Tree], credit: Credit) -> None:
    for bad in (np.nan, np.inf):
        leaf = trees[0].leaves()[0]
        kept, leaf.scores["reward"] = leaf.scores["reward"], bad
        said = _refusal(credit, table(trees))
        assert said, f"an outcome of {bad} was accepted"
        assert f"node {leaf.id}" in said, f"the error does not name node {leaf.id}: {said}"
        assert repr(trees[0].id) in said, f"the error does not name the tree: {said}"
        leaf.scores["reward"] = kept


def _refusal(credit: Credit, tab: Table) -> str:
    try:
        credit(tab)
    except CreditError as error:
        return str(error)
    return ""


def _claims(make: Grow, seed: int, credit: Credit, says: Claims) -> None:
    trees = make(np.random.default_rng(seed))
    tab = table(trees)
    base = _folded(tab, credit)
    if says.shift:
        moved = _mapped(make, seed, lambda r: r + 0.75)
        _alike(base, _folded(moved, credit), tab, moved, "0.75 added to every outcome")
    if says.scale is not None:
        scaled = _mapped(make, seed, lambda r: 3 * r)
        by = 3.0 if says.scale == "linear" else 1.0
        grown = Folded(base.gain * by, base.loss * by, base.weight)
        _alike(grown, _folded(scaled, credit), tab, scaled, "every outcome tripled", tolerance=1e-4)
    if says.zero_sum == "leaves":
        leaf = credit(tab).leaf
        assert leaf is not None, "zero_sum over leaves is claimed, but there is no leaf term"
        sums = np.bincount(tab.leaf_tree, leaf)
        assert np.allclose(sums, 0, atol=1e-9), f"advantages of a tree sum to {sums}"
    if says.zero_sum == "actions":
        sums = np.bincount(np.repeat(tab.tree, tab.length), base.gain + base.loss)
        assert np.allclose(sums, 0, atol=1e-9), f"advantages over a tree's actions sum to {sums}"
    if says.per_tree:
        alone = table(trees[:1])
        size = alone.actions
        part = Folded(base.gain[:size], base.loss[:size], base.weight[:size])
        _alike(part, _folded(alone, credit), alone, alone, "without the step's other trees")


def _mapped(make: Grow, seed: int, change: Callable[[float], float]) -> Table:
    trees = make(np.random.default_rng(seed))
    for tree in trees:
        for node in tree:
            if "reward" in node.scores:
                node.scores["reward"] = change(node.scores["reward"])
    return table(trees)


def _alike(a: Folded, b: Folded, of: Table, to: Table, why: str, *, tolerance: float = 1e-9) -> None:
    at = {(to.trees[t].id, n.id): (s, s + k) for t, n, s, k in zip(to.tree, to.nodes, to.start, to.length, strict=True)}
    for t, node, s, k in zip(of.tree, of.nodes, of.start, of.length, strict=True):
        first, stop = at[of.trees[t].id, node.id]
        for name in ("gain", "loss"):
            x, y = getattr(a, name)[s : s + k], getattr(b, name)[first:stop]
            assert np.allclose(x, y, rtol=tolerance, atol=tolerance), (
                f"{why}: {name} of node {node.id} of tree {of.trees[t].id!r} is {y}, was {x}"
            )


def _same_nodes(before: Sequence[dict[int, Node]], trees: Sequence[Tree]) -> bool:
    return all(
        old.scores.keys() == tree[i].scores.keys()
        and np.array_equal(list(old.scores.values()), list(tree[i].scores.values()), equal_nan=True)
        and old.status == tree[i].status
        and old.gain is None
        and tree[i].gain is None
        and old.children == tree[i].children
        for nodes, tree in zip(before, trees, strict=True)
        for i, old in nodes.items()
    )
