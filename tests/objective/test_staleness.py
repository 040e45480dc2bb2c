"""ESS, the scaled step, the minimum-variance baseline and its two accumulators; the mismatch report."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rolltree.objective.against import ObjectiveError
from rolltree.objective.staleness import (
    TwoAccumulators,
    ess,
    minimum_variance_baseline,
    mismatch,
    scaled_step,
    step_scale,
)
from rolltree.testing.objective import random_pair


def test_effective_share() -> None:
    assert ess(torch.ones(8)).item() == 1.0
    assert ess(torch.tensor([1.0, 0, 0, 0])).item() == 0.25
    assert ess(5 * torch.tensor([1.0, 3.0])).item() == pytest.approx(0.8)
    assert ess(torch.zeros(0)).item() == 1.0
    assert ess(torch.zeros(4)).item() == 1.0


def test_step_scale_is_monotone_and_never_above_one() -> None:
    scales = [step_scale(x / 10) for x in range(11)]
    assert scales == sorted(scales)
    assert step_scale(0.25) == 0.5
    assert step_scale(0.25, power=1.0) == 0.25
    assert step_scale(0.8, base=0.5) == 1.0
    with pytest.raises(ObjectiveError, match="not 0"):
        step_scale(0.5, base=0.0)


def test_a_scaled_step_is_undone_even_when_the_step_fails() -> None:
    p = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = torch.optim.SGD([{"params": [p], "lr": 0.4}])
    p.grad = torch.ones(1)
    with scaled_step(optimizer, 0.5):
        optimizer.step()
    assert p.item() == pytest.approx(0.8)

    def fail() -> None:
        with scaled_step(optimizer, 0.5):
            raise RuntimeError("no step")

    with pytest.raises(RuntimeError):
        fail()
    assert optimizer.param_groups[0]["lr"] == 0.4


def paths_of_scores(n: int = 6) -> tuple[list[list[torch.Tensor]], list[float], list[float]]:
    g = torch.Generator().manual_seed(0)
    scores = [[torch.randn(3, generator=g).double(), torch.randn(2, 2, generator=g).double()] for _ in range(n)]
    rewards = torch.rand(n, generator=g).tolist()
    weights = torch.rand(n, generator=g).mul(2).tolist()
    return scores, rewards, weights


def test_two_accumulators_equal_the_sum_over_stored_gradients() -> None:
    scores, rewards, weights = paths_of_scores()
    held = TwoAccumulators()
    for score, reward, weight in zip(scores, rewards, weights, strict=True):
        held.add(score, reward, weight)
    for b in (0.0, 0.3, held.baseline):
        for k, got in enumerate(held.result(b)):
            wanted = sum(w * (r - b) * s[k] for s, r, w in zip(scores, rewards, weights, strict=True)) / len(scores)
            torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(held.result()[0], held.result(held.baseline)[0])


def test_the_baseline_minimises_the_second_moment() -> None:
    """Σ ‖w(R − b)g‖² is quadratic in b; its minimum is where the derivative is zero."""
    scores, rewards, weights = paths_of_scores()
    norms = torch.tensor([float(sum(x.square().sum() for x in s)) ** 0.5 for s in scores]).double()
    r, w = torch.tensor(rewards).double(), torch.tensor(weights).double()

    def moment(b: float) -> float:
        return float((w * (r - b) * norms).square().sum())

    best = minimum_variance_baseline(r, norms, w).item()
    assert all(moment(best) < moment(best + d) for d in (-0.01, 0.01))
    released = minimum_variance_baseline(r, norms, w, as_released=True).item()
    assert released != pytest.approx(best)
    assert minimum_variance_baseline(r, norms, torch.ones(6).double()).item() == pytest.approx(
        float((norms.square() * r).sum() / norms.square().sum())
    )
    assert minimum_variance_baseline(r, 0 * norms, w).item() == 0.0


def test_a_gradient_of_another_model_is_refused() -> None:
    held = TwoAccumulators()
    held.add([torch.zeros(2)], 1.0)
    with pytest.raises(ObjectiveError, match="2 tensors"):
        held.add([torch.zeros(2), torch.zeros(1)], 1.0)


def test_mismatch_report() -> None:
    batch = random_pair(5, missing=0.3).folded
    known = batch.sampled.isfinite()
    gap = (batch.old - batch.sampled)[known]
    w = batch.weight[known] / batch.weight[known].sum()
    report = mismatch(batch, threshold=0.4)
    assert report["mismatch"].item() == pytest.approx((w * gap.abs()).sum().item())
    assert report["mismatch_max"].item() == pytest.approx(gap.abs().max().item())
    assert report["mismatch_over"].item() == pytest.approx((w * (gap.abs() > 0.4)).sum().item())
    assert report["sampling_k3"].item() == pytest.approx((w * (gap.exp() - 1 - gap)).sum().item())
    assert report["unsampled"].item() == pytest.approx(batch.weight[~known].sum().item())
    actions = mismatch(replace(batch, paths=None))
    assert actions["ess"].item() == pytest.approx(ess(gap.exp()).item())
    with pytest.raises(ObjectiveError, match="`sampled`"):
        mismatch(replace(batch, sampled=None))


def test_no_mismatch_when_the_sampler_is_the_policy(pair) -> None:
    report = mismatch(replace(pair.folded, sampled=pair.folded.old))
    assert [report[k].item() for k in ("mismatch", "mismatch_max", "mismatch_over", "sampling_k3", "unsampled")] == [
        0
    ] * 5
    assert report["ess"].item() == pytest.approx(1.0)
