"""Curves at a budget, areas and bands."""

import numpy as np
import pytest

from rolltree.compare.curves import FEW, area, band, endpoint, value_at
from rolltree.compare.trace import LabError, Trace, TraceTally, by_seed, load_trace, save_trace


def trace(seed=0, xs=(0, 50, 100), ys=(0.0, 0.2, 0.6), label="a"):
    rows = tuple({"decoded": float(x), "m": float(y)} for x, y in zip(xs, ys, strict=True))
    return Trace(label, seed, rows, {"i": TraceTally(4, 2, 3)})


def test_values_and_areas_by_hand():
    assert value_at(trace(), "m", 75) == pytest.approx(0.4)
    assert area(trace(), "m", 100) == pytest.approx((0.1 * 50 + 0.4 * 50) / 100)
    assert area(trace(), "m", 50) == pytest.approx(0.1)
    assert area(trace(xs=(10, 60, 110)), "m", 100) == pytest.approx((0 * 10 + 0.1 * 50 + 0.36 * 40) / 100)


def test_a_run_just_short_of_the_budget_counts_with_its_last_value():
    assert value_at(trace(), "m", 105) == 0.6
    with pytest.raises(LabError, match="only up to 100 of 120"):
        value_at(trace(), "m", 120)


def test_a_metric_that_was_never_measured_is_named():
    with pytest.raises(LabError, match="never measured 'q'; it has: m"):
        trace().curve("q")


def test_bands_are_intervals_of_many_and_ranges_of_few():
    many = [trace(s, ys=(0.0, 0.2 + 0.01 * s, 0.6)) for s in range(FEW)]
    made = band(many, "m", points=3)
    assert not made.ranged
    assert made.low[1] < made.mean[1] < made.high[1]
    assert made.low[0] == made.high[0] == 0.0
    few = band(many[:2], "m", points=3)
    assert few.ranged
    assert (few.low[1], few.high[1]) == pytest.approx((0.2, 0.21))


def test_a_band_ends_where_the_shortest_run_or_the_budget_ends():
    pair = [trace(0), trace(1, xs=(5, 60, 80))]
    made = band(pair, "m")
    assert (made.x[0], made.x[-1]) == (5, 80)
    assert band(pair, "m", until=70).x[-1] == 70
    assert np.all(np.diff(made.x) > 0)


def test_traces_are_read_back_whole(tmp_path):
    save_trace(trace(3), tmp_path / "trace.json")
    assert load_trace(tmp_path / "trace.json") == trace(3)
    assert by_seed([trace(3), trace(4), trace(3, label="b")], "a") == {3: trace(3), 4: trace(4)}


@pytest.mark.parametrize("text", ["{", '{"label": "a"}', '{"label": "a", "seed": 1, "rows": [1], "items": {}}'])
def test_damaged_traces_are_named(tmp_path, text):
    (tmp_path / "trace.json").write_text(text)
    with pytest.raises(LabError, match=r"cannot read the trace .*trace.json"):
        load_trace(tmp_path / "trace.json")


def test_the_end_of_a_curve_is_the_mean_of_its_last_evaluations():
    long = trace(xs=(0, 20, 40, 60, 80, 100), ys=(0.0, 0.1, 0.2, 0.4, 0.6, 0.8))
    assert endpoint(long, "m") == pytest.approx(0.6)
    assert endpoint(long, "m", 80) == pytest.approx(0.4)
    assert endpoint(long, "m", 70) == pytest.approx(0.4), "the step that overshoots the budget belongs to it"
    assert endpoint(trace(xs=(0, 50), ys=(0.9, 0.3)), "m") == 0.3, "the policy before training is not its end"
    assert endpoint(trace(xs=(0,), ys=(0.9,)), "m") == 0.9
    with pytest.raises(LabError, match="only up to 100 of 200"):
        endpoint(long, "m", 200)


def test_the_hard_third_is_that_of_the_policy_all_arms_start_from(tmp_path):
    start = {f"i{k}": TraceTally(4, k % 5) for k in range(5)} | {"only at first": TraceTally(4, 0)}
    end = {f"i{k}": TraceTally(4, 4 - k % 5) for k in range(5)}
    made = Trace("a", 0, trace().rows, end, first=start)
    assert made.hard() == pytest.approx((4 / 4 + 3 / 4) / 2), "i0 and i1 of five, as they stand at the end"
    assert trace().hard() is None
    save_trace(made, tmp_path / "t.json")
    assert load_trace(tmp_path / "t.json").hard() == made.hard()
