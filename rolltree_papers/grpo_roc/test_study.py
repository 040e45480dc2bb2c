"""The evidence of GRPO-RoC compares as many rollouts."""

from __future__ import annotations

import numpy as np
import pytest

from rolltree.filter.groups import live_leaves
from rolltree.filter.lengths import Shaper
from rolltree.tree import Tree
from rolltree_papers.grpo_roc import Cleanest
from rolltree_papers.grpo_roc import study as clean


def test_as_many_rollouts_teach_at_random_as_the_cleanest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean, "STEPS", 3)
    kept = dict[str, list[int]]()

    def counted(name: str, shaper: Shaper) -> Shaper:
        def shape(tree: Tree, limit: int) -> None:
            shaper(tree, limit)
            kept.setdefault(name, []).append(len(live_leaves(tree)))

        return shape

    random = clean.AtRandom(clean.KEPT, np.random.default_rng(0))
    own = clean.Watched(Cleanest(clean.KEPT))
    for name, shaper in (("own", own), ("random", random)):
        clean.trained(0, counted(name, shaper))
    assert set(kept["own"]) == set(kept["random"]) == {clean.KEPT}
    assert own.passed > 0
