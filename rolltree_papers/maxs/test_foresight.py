"""MAXS: its formulas to the digit, the trap that only the variance terms see, and the end of looking ahead."""

from __future__ import annotations

import numpy as np
import pytest

from rolltree_papers.maxs import Foresight
from rolltree_papers.maxs.study import good, grown, told_apart


def test_the_rewards_are_the_papers_formulas() -> None:
    rule = Foresight()
    ahead, before = [[-0.2, -0.6, -0.4], [-1.0, -1.0, -1.0]], 0.3

    def norm(r: list[float]) -> np.ndarray:
        e = np.exp(np.array(r) / 0.6)
        return e / e.sum()

    adv = [np.exp((np.exp(-0.4) - 0.3) / 0.6), np.exp((np.exp(-1.0) - 0.3) / 0.6)]
    step = [np.exp(-((0.2**2 + 0.2**2 + 0) / 3) / 0.6), 1.0]
    slope = [np.exp(-(0.3**2) / 0.6), 1.0]
    expected = 0.5 * norm(adv) + 0.3 * norm(step) + 0.2 * norm(slope)
    assert rule.rewards(ahead, before) == pytest.approx(expected)
    weight = np.array([0.4, 0.1]) * np.exp(expected / 0.6)
    assert rule.chances([0.4, 0.1], expected) == pytest.approx(weight / weight.sum())


def test_only_the_variance_terms_see_a_trap_that_is_as_likely_as_the_good_path() -> None:
    with_, without = Foresight(0.1, delta=-1.0), Foresight(0.1, 0.0, 0.0, -1.0)
    assert good(grown(with_, 1, 60, steps=1)) > 0.8
    assert abs(good(grown(without, 1, 60, steps=1)) - 0.5) < 0.2
    assert abs(good(grown(with_, 1, 60, trap=False, steps=1)) - 0.5) < 0.2


def test_looking_ahead_ends_where_candidates_are_alike_and_what_was_looked_at_is_no_rollout() -> None:
    forest = grown(Foresight(), 0, 6, trap=False)
    for tree in forest:
        assert sum(event.kind == "select" for event in tree.events) == 1, "four equal futures: the first variance is 0"
        assert [leaf.status for leaf in tree.leaves() if leaf.status != "pruned"] == ["done"]
        looked = [e for e in tree.events if e.kind == "prune" and e.why == "looked ahead"]
        assert len(looked) == 4


def test_without_the_variance_terms_no_first_step_is_told_apart() -> None:
    assert told_apart(grown(Foresight(), 0, 10)) > 0.5
    assert told_apart(grown(Foresight(alpha=0.0, beta=0.0), 0, 10)) == 0
