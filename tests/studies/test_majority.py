"""Counts of votes, by hand."""

import pytest

from studies.majority import tally


def test_votes_are_counted_by_prompt():
    sure = [("4", True), ("4", True), ("5", False), ("6", False)]
    fooled = [("9", False), ("9", False), ("9", False), ("7", True)]
    solved = [("1", True), ("1", True)]
    right, voted, agree = tally([sure, fooled, solved])
    assert right == pytest.approx((0.5 + 0.25 + 1) / 3)
    assert voted == pytest.approx(2 / 3)
    assert agree == pytest.approx((1 + 3) / 5)
