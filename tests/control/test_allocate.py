"""Allocators keep their budget and their bounds, and are optimal where they say so."""

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rolltree.control.allocate import exact_sum, greedy, proportional, square_root
from rolltree.control.order import ControlError

WEIGHTS = st.lists(st.floats(0, 100) | st.just(0.0), min_size=1, max_size=8)

PATIENT = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(WEIGHTS, st.integers(0, 100), st.integers(0, 3), st.none() | st.integers(3, 20))
@PATIENT
def test_proportional_counts_sum_to_the_total_within_bounds(weights, total, low, high):
    counts = proportional(weights, total, low, high)
    most = np.inf if high is None else high * len(weights)
    assert sum(counts) == min(max(total, low * len(weights)), most)
    assert all(low <= c and (high is None or c <= high) for c in counts)
    for (a, m), (b, n) in product(zip(weights, counts, strict=True), repeat=2):
        assert a <= b or m >= n - 1


def test_proportional_is_proportional_and_refuses_nonsense():
    assert proportional([1, 2, 5], 16) == [2, 4, 10]
    assert proportional([0, 0], 4) == [2, 2]
    assert proportional([], 4) == []
    with pytest.raises(ControlError, match="at least 0, got -1"):
        proportional([1, -1], 4)


@given(st.lists(st.floats(0, 0.25), min_size=2, max_size=4), st.integers(8, 14))
@PATIENT
def test_greedy_is_optimal_for_falling_gains(variances, total):
    def error(counts):
        return sum(v / n for v, n in zip(variances, counts, strict=True))

    given_now = [1] * len(variances)
    more = greedy(lambda i, n: variances[i] / n - variances[i] / (n + 1), given_now, total - len(variances))
    assert sum(more) == total - len(variances)
    best = min(error(c) for c in product(range(1, total), repeat=len(variances)) if sum(c) == total)
    assert error([1 + m for m in more]) == pytest.approx(best)


def test_greedy_stops_at_its_ceiling_and_hands_out_chunks():
    assert greedy(lambda i, n: -n, [0, 0], 10, high=3) == [3, 3]
    assert greedy(lambda i, n: i - n / 100, [0, 0], 5, chunk=2) == [0, 5]


@given(st.lists(st.floats(0.01, 0.25), min_size=2, max_size=5), st.integers(10, 60))
@PATIENT
def test_the_square_root_distribution_beats_every_neighbour(variances, total):
    sizes = [1.0] * len(variances)
    n = square_root(variances, sizes, total, low=0)
    assert sum(n) == pytest.approx(total)
    here = sum(v / x for v, x in zip(variances, n, strict=True))
    for i, j in permutations(range(len(n)), 2):
        moved = list(n)
        step = 0.01 * moved[i]
        moved[i], moved[j] = moved[i] - step, moved[j] + step
        assert sum(v / x for v, x in zip(variances, moved, strict=True)) >= here - 1e-9


@given(
    st.lists(st.lists(st.floats(-5, 5), min_size=3, max_size=3), min_size=1, max_size=4),
    st.lists(st.integers(1, 5), min_size=4, max_size=4), st.integers(1, 60),
)  # fmt: skip
@PATIENT
def test_exact_sum_is_the_best_choice_that_costs_the_budget(worth, sizes, total):
    widths, sizes = (2, 4, 8), sizes[: len(worth)]
    chosen = exact_sum(worth, sizes, widths, total)
    every = list(product(range(3), repeat=len(worth)))
    cost = {c: sum(s * widths[k] for s, k in zip(sizes, c, strict=True)) for c in every}
    below = [v for v in cost.values() if v <= total]
    goal = max(below) if below else min(cost.values())
    value = {c: sum(w[k] for w, k in zip(worth, c, strict=True)) for c in every if cost[c] == goal}
    assert cost[tuple(chosen)] == goal
    assert value[tuple(chosen)] == pytest.approx(max(value.values()))
