"""What a quick success is worth."""

from __future__ import annotations

import pytest

from rolltree_papers.poly_ppo import Brisk
from tests.filter.sessions import shaped as paid


def test_a_quick_success_is_worth_more_and_a_failure_nothing():
    assert paid([5], Brisk(0.5))["reward"] == pytest.approx(1 - 0.5 * 3 / 10)
    assert paid([5] * 9, Brisk(0.5))["reward"] == pytest.approx(0.5)
    assert paid([5], Brisk(0.5), reward=0.0)["reward"] == 0.0
