"""Bandits trained with shipped credits."""

from __future__ import annotations

import numpy as np

from rolltree.credit.registry import load_credit
from studies.exact.bandit import softmax, train


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
