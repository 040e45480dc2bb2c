"""From trees to the channels a trainer reads, in one call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rolltree.credit.advantage import Advantage, Credit
from rolltree.credit.fold import Averaging, Folded, Multiplicity, fold, leaf_weights, write
from rolltree.credit.needs import check_needs
from rolltree.credit.registry import resolve
from rolltree.tree.table import Floats, Table, table
from rolltree.tree.tree import Tree


@dataclass(frozen=True, slots=True)
class Assigned:
    """Everything between the trees and their nodes' `gain`, `loss` and `weight`."""

    table: Table
    advantage: Advantage
    weights: Floats
    folded: Folded


def assign(
    trees: Iterable[Tree], credit: Credit | str, *, averaging: Averaging = "token", fixed_length: int | None = None,
    multiplicity: Multiplicity = "per_leaf",
) -> Assigned:  # fmt: skip
    """Check the credit's needs, compute it on the trees as one step, fold it and write it on the nodes."""
    tab = table(trees)
    chosen = resolve(credit)
    check_needs(tab, chosen)
    advantage = chosen(tab)
    weights = leaf_weights(tab, averaging, counted=advantage.counted, fixed_length=fixed_length)
    folded = fold(tab, advantage, weights, multiplicity)
    write(tab, folded)
    return Assigned(tab, advantage, weights, folded)
