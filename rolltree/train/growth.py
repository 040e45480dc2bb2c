"""How a step's trees grew: what is shared, where they fork, what was pruned and how much the leaves differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from rolltree.train.spending import lost_tokens
from rolltree.tree import Tree
from rolltree.tree.views import metrics


def growth(trees: Iterable[Tree]) -> dict[str, float]:
    """Means over trees of `rolltree.tree.views.metrics`; sums of nodes by birth and by why they were pruned, and of
    lost tokens."""
    trees = list(trees)
    of_trees = [m for m in map(metrics, trees) if m.leaves]
    if not of_trees:
        return {}
    births: Counter[str] = Counter()
    prunes: Counter[str] = Counter()
    depths: Counter[int] = Counter()
    for m in of_trees:
        births.update(m.births)
        prunes.update(m.prunes)
        depths.update(m.depths)
    names = ("leaves", "duplicated", "answers", "sharing_ratio", "effective_branches", "without_sampling_logprob")
    out = {f"tree.{name}": float(np.mean([getattr(m, name) for m in of_trees])) for name in names}
    out["tree.depth"] = sum(depth * count for depth, count in depths.items()) / sum(depths.values())
    out |= {f"tree.births.{birth}": float(count) for birth, count in sorted(births.items())}
    out |= {f"tree.pruned: {why}": float(count) for why, count in sorted(prunes.items())}
    return out | lost_tokens(trees)
