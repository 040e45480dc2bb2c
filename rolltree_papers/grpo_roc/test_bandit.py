"""Bandits trained with shipped credits."""

from __future__ import annotations

import numpy as np
import pytest

from rolltree.credit.registry import load_credit
from rolltree.filter.groups import live_leaves
from rolltree.filter.lengths import Shaper
from rolltree.tree import Tree
from rolltree_papers.grpo_roc import Cleanest
from studies.exact import clean
from studies.exact.bandit import fapo, softmax, train


def test_one_step_of_a_bandit_is_the_sampled_policy_gradient() -> None:
    """Against Σ A (e_a − π) / G written out."""
    start = np.log(np.array([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]]))
    drawn: list[tuple[int, float]] = []

    def judge(leaf, answer: int) -> None:  # pyright: ignore
        leaf.scores["reward"] = float(answer)
        drawn.append((answer, float(answer)))

    before, after = train(load_credit("dr_grpo"), start, judge, group=4, steps=1, rate=0.5, seed=3)
    logits = start.copy()
    for p in range(2):
        mine = drawn[4 * p : 4 * p + 4]
        mean = np.mean([r for _, r in mine])
        for answer, reward in mine:
            logits[p] += 0.5 * (reward - mean) * (np.eye(3)[answer] - before[p]) / 4
    np.testing.assert_allclose(after, softmax(logits), atol=1e-12)


def test_both_arms_of_fapo_see_the_flaws_and_one_halves_them() -> None:
    found = fapo(1)
    assert set(found.curves) == {"FAPO", "outcome alone", "flawed is wrong"}
    assert all(y[0] == found.curves["FAPO"][1][0] for _, y in found.curves.values())
    assert found.baseline == found.curves["flawed is wrong"][1][-1]
    assert min(found.value, found.baseline) > found.curves["outcome alone"][1][-1] + 0.5
    assert all(count > 0 for count in found.acted.values())


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
