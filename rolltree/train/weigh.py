"""A control's gradient weight per prompt, applied to the credit of its tree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rolltree.credit.advantage import Advantage, Floats
from rolltree.tree.table import Table


def prompt_weighted(table: Table, advantage: Advantage) -> Advantage:
    """Advantages of each tree times its prompt's score `prompt_weight`; as they are where no prompt has one."""
    weight = table.score("prompt_weight")[table.root]
    if not np.isfinite(weight).any():
        return advantage
    per_tree = np.where(np.isfinite(weight), weight, 1.0)
    return replace(
        advantage,
        leaf=_times(advantage.leaf, per_tree[table.leaf_tree]),
        node=_times(advantage.node, per_tree[table.tree]),
        action=_times(advantage.action, np.repeat(per_tree[table.tree], table.length)),
    )


def _times(term: Floats | None, weight: Floats) -> Floats | None:
    return None if term is None else term * weight
