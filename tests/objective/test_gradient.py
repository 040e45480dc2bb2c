"""Policy gradients with a constant ratio, and the soft gate, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Paths, step_wide
from rolltree.objective.clipped import Sapo
from rolltree.objective.gradient import Cispo, Gpg, Reinforce
from rolltree.objective.hooks import skips_idle
from rolltree.objective.registry import load_objective
from rolltree.testing.objective import random_pair


def action(ratio: float, gain: float, loss: float) -> Batch:
    def one(x: float) -> torch.Tensor:
        return torch.tensor([x], dtype=torch.float64)

    return Batch((one(-2.0)).requires_grad_(), one(-2.0 - math.log(ratio)), one(gain), one(loss), one(1.0))


def slope(objective, batch: Batch) -> float:
    return torch.autograd.grad(-objective(batch)[0], batch.logp)[0].item()


@pytest.mark.parametrize(("ratio", "weight"), [(0.3, 0.3), (2.0, 2.0), (4.9, 4.9), (30.0, 5.0)])
def test_cispo_bounds_the_weight_and_never_the_gradient(ratio: float, weight: float) -> None:
    batch = action(ratio, 1.5, -0.5)
    loss, metrics = Cispo()(batch)
    assert -loss.item() == pytest.approx(weight * 1.0 * -2.0)
    assert slope(Cispo(), batch) == pytest.approx(weight)
    assert metrics["ratio_bounded"].item() == float(ratio > 5)


def test_reinforce_is_the_score_times_the_advantage(pair) -> None:
    (got,) = torch.autograd.grad(Reinforce()(pair.folded)[0], pair.folded.logp)
    torch.testing.assert_close(got, -(pair.folded.gain + pair.folded.loss), rtol=0, atol=0)


@pytest.mark.papers("aepo", "bapo", "minpro", "remix", "vcpo")
@pytest.mark.parametrize(
    "name",
    [
        "clipped",
        "cispo",
        "sapo",
        "remix",
        "decoupled",
        "minpro",
        "aepo",
        "bapo",
        "vcpo",
        "gspo",
        "gmpo",
        "kl_cov",
        "context_corrected",
    ],
)
def test_without_lag_every_surrogate_has_the_reinforce_gradient(name: str) -> None:
    pair = random_pair(0, one_advantage=True)
    logp = pair.folded.logp.detach()
    batch = replace(pair.folded, old=logp, sampled=logp)
    (got,) = torch.autograd.grad(load_objective(name)(batch)[0], batch.logp)
    torch.testing.assert_close(got, -(batch.gain + batch.loss), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("r", [0.2, 1.0, 1.7])
def test_sapo_value_and_slope(r: float) -> None:
    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    up, down = sigmoid(r - 1), sigmoid(1.05 * (r - 1))
    batch = action(r, 2.0, -1.0)
    loss, metrics = Sapo()(batch)
    assert -loss.item() == pytest.approx(2 * 4 * up - 4 / 1.05 * down)
    assert slope(Sapo(), batch) == pytest.approx(r * (2 * 4 * up * (1 - up) - 4 * down * (1 - down)))
    assert metrics["gate_positive"].item() == pytest.approx(4 * up * (1 - up))


def test_gpg_takes_silent_groups_out_of_the_average() -> None:
    def of(*values: float) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64)

    paths = Paths(torch.arange(6), torch.arange(6), of(1, -1, 0, 0, 0, 0), of(*[1 / 6] * 6), 6, torch.arange(6) // 2)
    gain, loss = of(1 / 6, 0, 0, 0, 0, 0), of(0, -1 / 6, 0, 0, 0, 0)
    batch = Batch(of(-1, -2, -3, -4, -5, -6).requires_grad_(), of(*[0] * 6), gain, loss, paths.weight, paths=paths)
    value, metrics = Gpg()(batch)
    assert metrics["gpg_alpha"].item() == 3.0
    assert value.item() == pytest.approx(3 * Reinforce()(batch)[0].item())
    assert Gpg(alpha=1.0)(batch)[0].item() == Reinforce()(batch)[0].item()
    silent = replace(batch, gain=0 * gain, loss=0 * loss, paths=replace(paths, advantage=0 * paths.advantage))
    assert Gpg()(silent)[0].item() == 0.0


def test_gpg_that_knows_its_groups_is_a_sum_over_actions_without_the_idle_ones() -> None:
    settled = Gpg().settle(groups=6, taught=2)
    assert (settled.alpha, settled.level, settled.needs) == (3.0, "token", frozenset())
    assert not step_wide(settled)
    assert skips_idle(settled)
    assert step_wide(Gpg())
    assert not skips_idle(Gpg())
    assert Gpg().settle(groups=4, taught=0).alpha == 1.0
    assert Gpg(alpha=2.0).settle(groups=6, taught=2).alpha == 2.0, "a factor that was given stays"


def test_bad_knobs_are_refused() -> None:
    with pytest.raises(ObjectiveError, match="are ratios"):
        Cispo(high=0.28)
    with pytest.raises(ObjectiveError, match="temperatures"):
        Sapo(tau_negative=0.0)
