"""The outcomes a credit starts from, checked."""

from __future__ import annotations

import numpy as np

from rolltree.credit.advantage import CreditError
from rolltree.tree.table import Bools, Floats, Table


def outcomes(table: Table, use: Bools | None = None) -> Floats:
    """Reward per leaf, 0 where a leaf is not used (default: not live); a NaN or infinite one names its node."""
    use = table.live if use is None else use & table.live
    values = np.where(use, table.reward, 0.0)
    refuse(table, table.leaf[~np.isfinite(values)], "reward")
    return values


def refuse(table: Table, rows: np.ndarray[tuple[int], np.dtype[np.int64]], name: str) -> None:
    """Raise for the first of these rows: its score is missing or not a finite number."""
    if len(rows):
        node, tree = table.nodes[rows[0]], table.trees[table.tree[rows[0]]]
        value = node.scores.get(name)
        said = "has no" if value is None else f"has a {name} of {value}, not a finite number, as"
        raise CreditError(
            f"node {node.id} of tree {tree.id!r} {said} {name!r}; score it, or mark the node failed so it is left out"
        )
