"""What `brorl` promises beside what all of its kind do."""

from __future__ import annotations

import numpy as np
import pytest

from rolltree.recipe.registry import load_recipe
from rolltree_papers.brorl import BroRl
from rolltree_papers.brorl import study as broad


def test_wide_and_usual_groups_cost_as_many_rollouts_and_learn_from_variance_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = dict[int, int]()

    def counted(logits, parts, group, rng):  # type: ignore[no-untyped-def]
        drawn[group] = drawn.get(group, 0) + group
        return original(logits, parts, group, rng)

    original = broad.step
    monkeypatch.setattr(broad, "step", counted)
    for group in (BroRl().group, broad.USUAL):
        broad.learned(group, 1.0, 0)
    assert set(drawn.values()) == {broad.ROLLOUTS}
    wrong = np.zeros((2, broad.ANSWERS))
    wrong[:, broad.RIGHT + 1] = 100.0
    push, seen = original(wrong, load_recipe("brorl").build(), 16, np.random.default_rng(0))
    assert not push.any()
    assert seen == 1
