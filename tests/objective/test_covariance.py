"""Clip-Cov and KL-Cov: which entries are restrained, and how."""

from __future__ import annotations

import pytest
import torch

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Paths, fit
from rolltree.objective.clipped import Clipped
from rolltree.objective.covariance import ClipCov, KlCov
from rolltree.testing.objective import random_pair


def line(logp: list[float], advantage: list[float], old: list[float] | None = None) -> Batch:
    a = torch.tensor(advantage, dtype=torch.float64)
    x = torch.tensor(logp, dtype=torch.float64)
    n = len(a)
    w = torch.ones(n, dtype=torch.float64) / n
    centre = x.clone() if old is None else torch.tensor(old, dtype=torch.float64)
    paths = Paths(torch.arange(n), torch.arange(n), a, w, n)
    return Batch(x.requires_grad_(), centre, w * a.clamp(min=0), w * a.clamp(max=0), w, paths=paths)


def test_kl_cov_penalises_the_largest_covariances_only() -> None:
    batch = line([-3.0, -1.0, -1.0, -3.0], [-2.0, 1.0, 0.0, 1.0], old=[-3.5, -1.2, -1.0, -3.0])
    # mean A = 0, mean log π = −2: covariances 2, 1, 0, −1
    r = (batch.logp - batch.old).exp()
    a = batch.paths.advantage
    expected = -(r * a).sum() / 4 + 1.0 * 0.5 / 4
    loss, metrics = KlCov(share=0.25)(batch)
    torch.testing.assert_close(loss, expected)
    assert metrics["cov_selected"].item() == 0.25
    two, _ = KlCov(share=0.5, coefficient=2.0)(batch)
    torch.testing.assert_close(two, -(r * a).sum() / 4 + 2.0 * (0.5 + 0.2) / 4)


def test_kl_cov_as_written_estimates_the_divergence_from_the_old_policy() -> None:
    """Mean of k3 over actions drawn from π_old is KL(π_old‖π)."""
    g = torch.Generator().manual_seed(0)
    old = torch.randn(6, generator=g, dtype=torch.float64).log_softmax(0)
    new = torch.randn(6, generator=g, dtype=torch.float64).log_softmax(0)
    estimate = KlCov(estimator="k3")._distance(new - old)
    assert (old.exp() * estimate).sum().item() == pytest.approx((old.exp() * (old - new)).sum().item())


def test_clip_cov_draws_from_the_band_and_cuts_the_gradient_there() -> None:
    logp = [-4.0, -0.5, -0.5, -0.5, -2.0, -2.0]
    advantage = [-2.0, 1.5, 1.4, 1.3, -1.0, -1.2]
    batch = line(logp, advantage)
    means = sum(advantage) / 6, sum(logp) / 6
    cov = [(a - means[0]) * (x - means[1]) for a, x in zip(advantage, logp, strict=True)]
    inside = [1.0 < c < 5.0 for c in cov]
    assert sum(inside) == 4
    for share, drawn in ((1 / 3, 2), (1.0, 4)):
        objective = ClipCov(share=share)
        (got,) = torch.autograd.grad(objective(batch)[0], batch.logp)
        cut = [bool(g == 0) for g in got]
        assert sum(cut) == drawn
        assert all(i for i, c in zip(inside, cut, strict=True) if c)


def test_the_draw_depends_on_the_seed_and_on_the_batch_only() -> None:
    batch = random_pair(9).folded
    cuts = set()
    for seed in range(8):
        objective = ClipCov(share=0.2, low=-100.0, high=100.0, seed=seed)
        gradient = torch.autograd.grad(objective(batch)[0], batch.logp)[0]
        assert torch.equal(gradient, torch.autograd.grad(objective(batch)[0], batch.logp)[0])
        cuts.add(tuple(gradient.tolist()))
    assert len(cuts) > 4


def test_an_empty_band_is_the_clipped_surrogate() -> None:
    batch = random_pair(9).folded
    torch.testing.assert_close(ClipCov(low=1e6, high=1e7)(batch)[0], Clipped()(batch)[0])


def test_what_the_clip_already_holds_is_not_drawn() -> None:
    batch = line([-0.5, -4.0], [2.0, -2.0], old=[-1.5, -4.0])  # the first is above the window
    objective = ClipCov(share=1.0, low=0.1, high=100.0)
    _, metrics = objective(batch)
    assert metrics["cov_selected"].item() == 0.5


def test_fitted_selection_does_not_depend_on_the_split_into_micro_batches() -> None:
    parts = [random_pair(s).folded for s in (1, 2, 3)]
    chosen = fit(KlCov(share=0.1), parts)
    picked = [chosen(p)[1]["cov_selected"].item() * p.weight.sum().item() for p in parts]
    entries = torch.cat([p.paths.advantage for p in parts])
    logp = torch.cat([p.logp.detach()[p.paths.index] for p in parts])
    cov = (entries - entries.mean()) * (logp - logp.mean())
    top = cov >= cov.topk(int(0.1 * len(cov))).values.min()
    weight = torch.cat([p.paths.entry_weight for p in parts])
    assert sum(picked) == pytest.approx((weight * top).sum().item())


def test_bad_knobs_are_refused() -> None:
    for build, words in (
        (lambda: ClipCov(low=5.0, high=1.0), "band"),
        (lambda: ClipCov(share=0.0), "share"),
        (lambda: KlCov(estimator="k1"), "k1"),
    ):
        with pytest.raises(ObjectiveError, match=words):
            build()
