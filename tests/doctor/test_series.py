"""Spells: stretches of trailing means beyond a threshold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolltree.doctor.examination import examine
from rolltree.doctor.run import CheckedRun
from rolltree.doctor.series import NotChecked, risen, series, together
from tests.doctor.planted import log

VALUES = st.lists(st.floats(-5, 5), min_size=1, max_size=40)


@given(VALUES, st.floats(-5, 5), st.integers(1, 8))
def test_a_spell_is_the_last_stretch_of_bad_means(values: list[float], limit: float, window: int) -> None:
    one = series("x", list(enumerate(values, 1)))
    wide = min(window, len(values))
    means = np.array([np.mean(values[i - wide : i]) for i in range(wide, len(values) + 1)])
    spell = one.beyond(limit, limit + 1, window)
    if np.any(np.abs(means - limit) < 1e-9):
        return
    assert (spell is not None) == bool((means > limit).any())
    if spell is None:
        return
    last = len(values) if spell.until is None else spell.until
    inside = means[spell.start - wide : last - wide + 1]
    assert (inside > limit).all()
    assert not (means[last - wide + 1 :] > limit).any()
    assert spell.value == pytest.approx(inside.max())
    assert spell.start == wide or means[spell.start - wide - 1] <= limit


@given(VALUES, st.floats(-5, 5), st.integers(1, 8))
def test_below_is_beyond_upside_down(values: list[float], limit: float, window: int) -> None:
    down = series("x", list(enumerate(values))).beyond(limit, limit - 1, window, below=True)
    up = series("x", [(i, -v) for i, v in enumerate(values)]).beyond(-limit, -limit + 1, window)
    assert (down is None) == (up is None)
    if down is not None and up is not None:
        assert (down.start, down.until, down.worst) == (up.start, up.until, up.worst)
        assert down.value == pytest.approx(-up.value)


def test_missing_values_are_left_out_and_never_zero() -> None:
    one = series("x", [(1, None), (2, float("nan")), (3, 2.0), (4, 4.0)])
    assert one.steps.tolist() == [3, 4]
    assert one.trailing(10).values.tolist() == [3.0]


def test_a_trend_needs_two_windows_and_a_start() -> None:
    with pytest.raises(NotChecked, match="needs 20 steps, there are 5"):
        series("x", [(i, 1.0) for i in range(5)]).relative(10)
    with pytest.raises(NotChecked, match="was 0 over"):
        series("x", [(i, 0.0) for i in range(20)]).relative(10)
    with pytest.raises(NotChecked, match="never measured at the same step"):
        together(series("a", [(1, 1.0)]), series("b", [(2, 1.0)]))


def test_noise_alone_rarely_rises_three_standard_errors() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        up, noise = risen(series("x", enumerate(rng.standard_normal(40))), 10)
        hits += bool((up[-1:] > 3 * noise[-1:]).any())
    assert hits < 8


@pytest.mark.parametrize("gone", ["eval/pass@1_high", "eval/pass@1_low", "eval/pass@1"])
def test_an_evaluation_that_lacks_a_number_is_left_out(gone: str) -> None:
    """As a line that was cut or rewritten does."""
    lines = log({"pass@1": lambda t: 0.6 - 0.5 * t})
    evaluations = [line for line in lines if line["kind"] == "eval"]
    del evaluations[1][gone]
    (finding,) = examine(CheckedRun("cut", lines), only=["held_out_falls"]).findings
    assert finding.numbers["eval/pass@1.before"] == evaluations[0].get("eval/pass@1")
