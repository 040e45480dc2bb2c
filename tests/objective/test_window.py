"""Windows around a centre, and the search for bounds."""

from __future__ import annotations

import pytest
import torch

from rolltree.objective.against import ObjectiveError
from rolltree.objective.window import ClipWindow, share, solve_window, two_channel


def test_per_action_bounds_and_centres() -> None:
    window = ClipWindow(torch.tensor([0.1, 0.2]), 0.3, torch.tensor([1.0, 2.0]))
    r = torch.tensor([2.0, 1.0])
    assert two_channel(r, torch.ones(2), torch.zeros(2), window).tolist() == pytest.approx([1.3, 1.0])
    assert two_channel(r, torch.zeros(2), -torch.ones(2), window).tolist() == pytest.approx([-2.0, -1.8])


def test_the_search_moves_one_bound_to_its_end_before_the_other() -> None:
    seen: list[tuple[float, float]] = []

    def statistic(low: float, high: float) -> float:
        seen.append((round(low, 3), round(high, 3)))
        return low + high

    found = solve_window(statistic, (0.6, 0.8, 0.1), (1.2, 2.0, 0.25), 2.4)
    assert found == pytest.approx((0.8, 1.7))
    assert seen == [(0.6, 1.2), (0.7, 1.2), (0.8, 1.2), (0.8, 1.45), (0.8, 1.7)]
    other = solve_window(lambda low, high: low + high, (0.6, 0.8, 0.1), (1.2, 2.0, 0.25), 2.4, low_first=False)
    assert other == pytest.approx((0.6, 1.95))


def test_a_target_that_is_met_keeps_the_start_and_one_out_of_reach_ends_at_the_ends() -> None:
    assert solve_window(lambda low, high: 1.0, (0.6, 0.9, 0.05), (1.2, 3.0, 0.05), 0.0) == (0.6, 1.2)
    assert solve_window(lambda low, high: 0.0, (0.6, 0.9, 0.05), (1.2, 3.0, 0.05), 0.5) == (0.9, 3.0)


def test_a_search_that_cannot_end_is_refused() -> None:
    with pytest.raises(ObjectiveError, match=r"low bound from 0\.6 to 0\.9 in steps of 0"):
        solve_window(lambda low, high: 0.0, (0.6, 0.9, 0.0), (1.2, 3.0, 0.05), 0.5)


def test_a_share_of_nothing_is_zero() -> None:
    assert share(torch.zeros(0), torch.zeros(0, dtype=torch.bool)).item() == 0.0
    assert share(torch.tensor([1.0, 3.0]), torch.tensor([True, False])).item() == 0.25
