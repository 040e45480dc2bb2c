"""KL estimators and their gradients on a softmax where every expectation is a sum."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rolltree.objective.against import ObjectiveError
from rolltree.objective.penalty import EntropyBonus, KlPenalty, kl
from rolltree.objective.ratio import LIMIT
from rolltree.objective.registry import load_objective


def policies() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    draw = [torch.randn(7, generator=g, dtype=torch.float64) for _ in range(3)]
    return draw[0].requires_grad_(), draw[1].log_softmax(0), draw[2].log_softmax(0)


def expected_gradient(theta: torch.Tensor, estimate: torch.Tensor, distribution: torch.Tensor) -> torch.Tensor:
    """Mean over actions drawn from a fixed distribution of the gradient of a per-action estimate."""
    return torch.autograd.grad((distribution.detach() * estimate).sum(), theta)[0]


def gradient_of(theta: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(value, theta)[0]


def test_values_and_gradients_of_the_three_estimators_on_policy() -> None:
    theta, ref, _ = policies()
    logp = theta.log_softmax(0)
    distribution = logp.exp()
    reverse = (distribution * (logp - ref)).sum()
    forward = (ref.exp() * (ref - logp)).sum()
    assert (distribution * kl(logp - ref, "k1")).sum().item() == pytest.approx(reverse.item())
    assert (distribution * kl(logp - ref, "k3")).sum().item() == pytest.approx(reverse.item())
    true = gradient_of(theta, reverse.clone())
    logp = theta.log_softmax(0)
    assert expected_gradient(theta, kl(logp - ref, "k1"), distribution).abs().max() < 1e-12
    logp = theta.log_softmax(0)
    torch.testing.assert_close(expected_gradient(theta, kl(logp - ref, "k2"), distribution), true)
    logp = theta.log_softmax(0)
    other = gradient_of(theta, (ref.exp() * (ref - theta.log_softmax(0))).sum())
    torch.testing.assert_close(expected_gradient(theta, kl(logp - ref, "k3"), distribution), other)
    assert forward.item() > 0


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_times_the_ratio_the_gradient_is_unbiased_off_policy(estimator) -> None:
    theta, ref, old = policies()
    logp = theta.log_softmax(0)
    estimate = (logp - old).exp() * kl(logp - ref, estimator)
    true = gradient_of(theta, (theta.log_softmax(0).exp() * (theta.log_softmax(0) - ref)).sum())
    torch.testing.assert_close(expected_gradient(theta, estimate, old.exp()), true)


def test_the_penalty_is_the_weighted_sum_and_zero_recovers_the_base(pair) -> None:
    batch = pair.folded
    base = load_objective("clipped")(batch)[0]
    with_kl, metrics = load_objective("clipped", kl=0.1, kl_estimator="k2")(batch)
    d = batch.logp - batch.reference
    torch.testing.assert_close(with_kl, base + 0.1 * (batch.weight * d.square() / 2).sum())
    assert metrics["kl_reference"].item() == pytest.approx((batch.weight * d.square() / 2).sum().item())
    assert load_objective("clipped", kl=0.0)(batch)[0].item() == base.item()


def test_weighted_multiplies_by_the_ratio_to_the_proximal_policy(pair) -> None:
    batch = pair.folded
    got, _ = KlPenalty(1.0, "k1", weighted=True)(batch)
    torch.testing.assert_close(
        got, (batch.weight * (batch.logp - batch.old).exp() * (batch.logp - batch.reference)).sum()
    )


def test_folded_penalties_equal_flat_ones(pair) -> None:
    for penalty in (KlPenalty(0.3, "k3"), KlPenalty(0.3, "k2", "previous"), EntropyBonus(0.2)):
        torch.testing.assert_close(penalty(pair.folded)[0], penalty(pair.flat)[0])


def test_an_entropy_bonus_lowers_the_loss_and_pushes_entropy_up(pair) -> None:
    batch = pair.folded
    loss, _ = EntropyBonus(0.5)(batch)
    (got,) = torch.autograd.grad(loss, batch.entropy)
    torch.testing.assert_close(got, -0.5 * batch.weight)


def test_missing_fields_are_named(pair) -> None:
    objective = load_objective("clipped", kl=0.1, entropy_bonus=0.1)
    assert objective.needs == {"reference", "entropy"}
    with pytest.raises(ObjectiveError, match="`reference`"):
        objective(replace(pair.folded, reference=None))
    with pytest.raises(ObjectiveError, match="`entropy`"):
        objective(replace(pair.folded, entropy=None))


def test_a_vanished_action_costs_a_bounded_penalty() -> None:
    d = torch.tensor([-300.0, 300.0], dtype=torch.float64)
    for estimator in ("k1", "k2", "k3"):
        assert torch.isfinite(kl(d, estimator)).all()


@pytest.mark.parametrize("nats", [-60.0, -25.0, -3.0, 3.0, 25.0, 60.0])
@pytest.mark.parametrize(
    ("estimator", "value", "slope"),
    [
        ("k1", lambda d: d, torch.ones_like),
        ("k2", lambda d: d.square() / 2, lambda d: d),
        ("k3", lambda d: (-d).exp() - 1 + d, lambda d: 1 - (-d).exp()),
    ],
    ids=["k1", "k2", "k3"],
)
def test_far_from_the_reference_the_penalty_still_pulls(nats, estimator, value, slope) -> None:
    d = torch.tensor(nats, dtype=torch.float64, requires_grad=True)
    estimate = kl(d, estimator)
    (pull,) = torch.autograd.grad(estimate, d)
    if estimator != "k3" or nats > -LIMIT:
        torch.testing.assert_close(estimate, value(d))
        torch.testing.assert_close(pull, slope(d.detach()))
        return
    # The exponential goes on as its tangent: bounded, and in the right direction.
    steepest = torch.tensor(LIMIT, dtype=torch.float64).exp()
    torch.testing.assert_close(pull, 1 - steepest)
    torch.testing.assert_close(estimate, steepest * (1 - nats - LIMIT) - 1 + nats)
