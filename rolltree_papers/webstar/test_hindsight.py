"""Steps kept one by one are worth more to a copy than whole rollouts, unless the grader knows nothing."""

from __future__ import annotations

from rolltree_papers.webstar.study import arm


def test_step_filter_above_trajectory_filter_above_all_and_nothing_by_chance() -> None:
    every, whole, (steps, failed), blind = (
        arm("all", 1.0, 0, 8)[0], arm("successful", 1.0, 0, 8)[0], arm("graded", 1.0, 0, 8), arm("graded", 0.5, 0, 8)[0]
    )  # fmt: skip
    assert steps > whole + 0.03 > every + 0.2
    assert abs(blind - every) < 0.12
    assert 0.2 < failed < 0.8, "good steps of failed rollouts are used"
