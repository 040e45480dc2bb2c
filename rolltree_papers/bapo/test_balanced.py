"""BAPO: what the search balances, on cases by hand and against the published probe."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, fit
from rolltree.testing.objective import random_pair
from rolltree_papers.bapo.objective import Bapo, positive_share


def drifted(n: int = 4000) -> Batch:
    """45 % positives, log-normal ratios with σ = 0.4."""
    g = torch.Generator().manual_seed(3)
    a = torch.where(torch.rand(n, generator=g) < 0.45, 1.0, -1.0).double()
    logp = 0.4 * torch.randn(n, generator=g, dtype=torch.float64)
    w = torch.ones(n, dtype=torch.float64) / n
    return Batch(logp.requires_grad_(), torch.zeros(n, dtype=torch.float64), w * a.clamp(min=0), w * a.clamp(max=0), w)


def test_the_share_is_that_of_the_clipped_surrogate() -> None:
    a = torch.tensor([1.0, 2.0, -1.0, -3.0], dtype=torch.float64)
    r = torch.tensor([0.5, 4.0, 0.1, 2.0], dtype=torch.float64)
    batch = Batch(r.log(), torch.zeros(4, dtype=torch.float64), a.clamp(min=0), a.clamp(max=0), torch.ones(4))
    value = positive_share(batch)
    assert value(0.6, 1.2) == pytest.approx((0.5 + 2.4) / (0.5 + 2.4 + 0.6 + 6.0))
    gradient = positive_share(batch, "gradient")
    assert gradient(0.6, 1.2) == pytest.approx(0.5 / (0.5 + 6.0))
    assert positive_share(batch, "gradient", dual=1.5)(0.6, 1.2) == 1.0


def test_monotone_response_of_either_statistic_to_either_bound() -> None:
    """Raising c_low lowers the value share and raises the gradient share; raising c_high raises both."""
    batch = drifted()
    value, gradient = positive_share(batch), positive_share(batch, "gradient")
    lows = [0.6, 0.7, 0.8, 0.9]
    assert sorted((value(x, 1.2) for x in lows), reverse=True) == [value(x, 1.2) for x in lows]
    assert sorted(gradient(x, 1.2) for x in lows) == [gradient(x, 1.2) for x in lows]
    highs = [1.2, 1.6, 2.0, 3.0]
    for share in (value, gradient):
        assert sorted(share(0.6, x) for x in highs) == [share(0.6, x) for x in highs]


def test_the_search_ends_where_the_target_is_first_met() -> None:
    batch = drifted()
    share = positive_share(batch, "gradient", 3.0)
    solved = fit(Bapo(target=0.4, contribution="gradient"), [batch])
    assert isinstance(solved, Bapo)
    low, high = solved.bounds
    assert share(low, high) >= 0.4
    before = (low, round(high - 0.05, 10)) if high > 1.2 else (low - 0.05, high)
    assert share(*before) < 0.4


def test_a_target_of_zero_is_the_dual_clipped_surrogate_with_the_start_bounds() -> None:
    batch = random_pair(2).folded
    loss, metrics = Bapo(target=0.0)(batch)
    torch.testing.assert_close(loss, -reference(batch, 0.6, 1.2, 3.0))
    assert metrics["bound_low"].item() == 0.6
    assert metrics["bound_high"].item() == 1.2


def reference(batch: Batch, low: float, high: float, dual: float) -> torch.Tensor:
    r = (batch.logp - batch.old).exp()
    total = torch.zeros((), dtype=torch.float64)
    for entry, leaf, a in zip(batch.paths.index, batch.paths.path, batch.paths.advantage, strict=True):
        plain = torch.minimum(r[entry] * a, r[entry].clamp(low, high) * a)
        total = total + batch.paths.weight[leaf] * (torch.maximum(plain, dual * a) if a < 0 else plain)
    return total


def test_bounds_are_those_of_the_whole_step_whatever_the_micro_batches() -> None:
    parts = [random_pair(s).folded for s in (1, 2, 3)]
    solved = fit(Bapo(target=0.6), parts)
    alone = [fit(Bapo(target=0.6), [part]) for part in parts]
    assert len({objective.bounds for objective in (solved, *alone)}) > 1
    for part in parts:
        low, high = solved.bounds
        torch.testing.assert_close(solved(part)[0], -reference(part, low, high, 3.0))
    assert fit(Bapo(target=0.6), list(reversed(parts))).bounds == solved.bounds


def test_without_negatives_nothing_is_searched() -> None:
    batch = drifted()
    positive = replace(batch, loss=0 * batch.loss)
    assert fit(Bapo(), [positive]).bounds == (0.6, 1.2)


def test_bad_knobs_are_refused() -> None:
    for build, words in (
        (lambda: Bapo(target=1.0), "share of the total"),
        (lambda: Bapo(contribution="grad"), "contribution='grad'"),
        (lambda: Bapo(high_start=0.9), "clip_high"),
    ):
        with pytest.raises(ObjectiveError, match=words):
            build()


def test_how_far_the_bounds_moved_is_zero_only_where_nothing_was_searched() -> None:
    batch = drifted()
    assert fit(Bapo(target=0.0), [batch])(batch)[1]["bounds_moved"].item() == 0.0
    _, metrics = fit(Bapo(), [batch])(batch)
    told = metrics["bound_low"].item() - 0.6 + metrics["bound_high"].item() - 1.2
    assert metrics["bounds_moved"].item() == pytest.approx(told)
    assert told > 0
