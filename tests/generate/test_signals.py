"""Signals name their variant, keep to their stated range, and refuse thresholds that could never fire."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolltree.generate.signals import (
    Signal,
    SignalError,
    check_threshold,
    divergence,
    edit_distance,
    of_top,
    rise,
    similarity,
    trailing_mean,
)

TOP_KINDS = ("entropy:top", "entropy:top-normalised", "confidence:mass", "confidence:neglog")


@given(
    logits=st.lists(st.floats(-8, 8), min_size=6, max_size=6),
    k=st.integers(1, 6),
    kind=st.sampled_from(TOP_KINDS),
)
def test_every_variant_stays_in_its_stated_range(logits: list[float], k: int, kind: str) -> None:
    p = np.exp(logits) / np.exp(logits).sum()
    top = np.log(np.sort(p)[::-1][:k])[None]
    value = float(of_top(kind, top)[0])  # type: ignore[arg-type]
    low, high = Signal(kind, k).range(6)  # type: ignore[arg-type]
    assert low - 1e-9 <= value <= high + 1e-9


def test_full_support_makes_the_top_entropies_agree_with_the_full_one() -> None:
    p = np.array([0.5, 0.3, 0.2])
    full = -(p * np.log(p)).sum()
    for kind in ("entropy:top", "entropy:top-normalised"):
        assert of_top(kind, np.log(p)[None])[0] == pytest.approx(full)


def test_the_released_echo_gate_is_refused_twice() -> None:
    with pytest.raises(SignalError, match=r"never true.*\[0, 2.3\]"):
        check_threshold(Signal("entropy:top-normalised", 10), ">=", 3.5, 32_000, where="echo gate")
    with pytest.raises(SignalError, match="never true"):
        check_threshold(Signal("confidence:neglog", 5), "<=", 1.2, 32_000, where="echo gate")
    check_threshold(Signal("entropy:full"), ">=", 3.5, 32_000, where="echo gate")


def test_a_threshold_that_always_fires_is_refused() -> None:
    with pytest.raises(SignalError, match="always true"):
        check_threshold(Signal("entropy:full"), ">=", 0.0, 64, where="here")


def test_a_top_signal_without_k_says_so() -> None:
    with pytest.raises(SignalError, match="needs k"):
        Signal("entropy:top")


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30), st.integers(1, 8))
def test_windows_equal_their_definition(values: list[float], window: int) -> None:
    array = np.array(values)
    for i in range(len(array)):
        assert trailing_mean(array, window)[i] == pytest.approx(array[max(0, i - window + 1) : i + 1].mean(), abs=1e-9)
        before = array[max(0, i - window) : i]
        assert rise(array, window)[i] == pytest.approx(array[i] - before.mean() if i else 0.0, abs=1e-9)


def _levenshtein(a: list[int], b: list[int]) -> int:
    table = [[max(i, j) if 0 in (i, j) else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            table[i][j] = min(table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (a[i - 1] != b[j - 1]))
    return table[-1][-1]


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
def test_edit_distance_against_the_textbook_table(a: list[int], b: list[int]) -> None:
    assert edit_distance(np.array(a, int), np.array(b, int)) == _levenshtein(a, b)
    assert 0.0 <= similarity(np.array(a, int), np.array(b, int)) <= 1.0


def test_divergence_is_zero_for_synonyms_and_large_for_alternatives() -> None:
    embedding = np.array([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    even = np.log(np.array([[0.5, 0.5]]))
    assert divergence(even, np.array([[0, 1]]), embedding)[0] == pytest.approx(0.0)
    assert divergence(even, np.array([[0, 2]]), embedding)[0] == pytest.approx(1.0)
    sure = np.log(np.array([[1.0 - 1e-9, 1e-9]]))
    assert divergence(sure, np.array([[0, 2]]), embedding)[0] == pytest.approx(0.0, abs=1e-6)
    assert math.isfinite(float(divergence(even, np.array([[0, 2]]), np.zeros((3, 2)))[0]))
