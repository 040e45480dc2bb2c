"""What `dars` promises beside what all of its kind do."""

from hypothesis import given
from hypothesis import strategies as st

from rolltree_papers.dars import top_up
from tests.control.test_estimators import PATIENT


def test_darss_top_ups_are_those_of_the_released_code():
    rates = (0, 1 / 8, 2 / 8, 3 / 8, 4 / 8, 1.0)
    assert [top_up(p, 8, "even", most=32) for p in rates] == [24, 11, 3, 1, 0, 0]
    assert [top_up(p, 8, "hard", most=64) for p in rates] == [56, 24, 8, 3, 0, 0]


@given(st.integers(1, 7))
@PATIENT
def test_an_even_top_up_lifts_hard_prompts_to_the_peak_mass(solved):
    p, n = solved / 16, 16
    total = n + top_up(p, n, "even", most=10_000)
    assert total * 2 * p * (1 - p) >= n / 2 - 1e-9
    assert (total - 1) * 2 * p * (1 - p) < n / 2 + 1e-9 or total == n
