"""GMPO, MinPRO and VCPO against formulas written per sequence, with loops."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rolltree.objective.sequence import Gmpo
from rolltree.objective.staleness import ess, sequence_weights
from rolltree.testing.objective import random_pair
from rolltree_papers.minpro.objective import MinPro
from rolltree_papers.vcpo.objective import Vcpo


def sequences(batch):
    for leaf in range(batch.paths.count):
        rows = (batch.paths.path == leaf).nonzero()[:, 0]
        if len(rows):
            yield leaf, batch.paths.index[rows], batch.paths.advantage[rows]


def same_value_and_gradient(got: torch.Tensor, wanted: torch.Tensor, batch) -> None:
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(torch.autograd.grad(got, batch.logp)[0], torch.autograd.grad(wanted, batch.logp)[0])


@given(seed=st.integers(0, 10_000))
def test_gmpo_is_the_product_of_bounded_ratios_to_the_power_of_one_over_length(seed: int) -> None:
    """The paper's form: sgn(A)·(Π_t |min(r_t·A, clip(r_t)·A)|)^(1/T), which pulls |A| out of the root."""
    batch = random_pair(seed, one_advantage=True).folded
    total = torch.zeros((), dtype=torch.float64)
    for leaf, actions, advantage in sequences(batch):
        a, steps = advantage[0], len(actions)
        r = (batch.logp[actions] - batch.old[actions]).exp()
        bounded = torch.minimum(r * a, r.clamp(math.exp(-0.4), math.exp(0.4)) * a).abs()
        total = total - batch.paths.weight[leaf] * steps * a.sign() * bounded.prod() ** (1 / steps)
    same_value_and_gradient(Gmpo()(batch)[0], total, batch)


@given(seed=st.integers(0, 10_000), inclusive=st.booleans(), cap=st.booleans())
def test_minpro_weighs_by_the_smallest_earlier_ratio(seed: int, inclusive: bool, cap: bool) -> None:
    batch = random_pair(seed, missing=0.2).folded
    cispo = ppo = torch.zeros((), dtype=torch.float64)
    for leaf, actions, advantage in sequences(batch):
        low, seen = math.inf, False
        for action, a in zip(actions.tolist(), advantage, strict=True):
            known = bool(batch.sampled[action].isfinite())
            rho = (batch.logp[action] - (batch.sampled if known else batch.old)[action]).exp()
            if inclusive and known:
                low, seen = min(low, rho.item()), True
            factor = low if seen else 1.0
            factor = min(factor, 1.0) if cap else factor
            weight = min(rho.item() * factor, 5.0)
            cispo = cispo - batch.paths.weight[leaf] * a * weight * batch.logp[action]
            ppo = ppo - batch.paths.weight[leaf] * factor * torch.minimum(rho * a, rho.clamp(0.8, 1.28) * a)
            if not inclusive and known:
                low, seen = min(low, rho.item()), True
    same_value_and_gradient(MinPro(inclusive=inclusive, cap=cap)(batch)[0], cispo, batch)
    same_value_and_gradient(MinPro("ppo", inclusive=inclusive, cap=cap)(batch)[0], ppo, batch)


@given(seed=st.integers(0, 10_000))
def test_vcpo_weighs_a_sequence_by_its_product(seed: int) -> None:
    batch = random_pair(seed, missing=0.2).folded
    total = torch.zeros((), dtype=torch.float64)
    weights = []
    for leaf, actions, advantage in sequences(batch):
        d = (batch.logp - batch.sampled)[actions].detach()
        w = d[d.isfinite()].sum().exp().item()
        weights.append((leaf, w))
        total = total - (batch.paths.weight[leaf] * min(w, 8.0) * advantage * batch.logp[actions]).sum()
    loss, metrics = Vcpo()(batch)
    same_value_and_gradient(loss, total, batch)
    raw = sequence_weights(batch)
    for leaf, w in weights:
        assert raw[leaf].item() == pytest.approx(w)
    assert metrics["update_ess"].item() == pytest.approx(ess(raw).item())


def test_forced_actions_never_enter_a_weight() -> None:
    """Whatever stands in `old` and `logp` of an action without a sampling probability, other actions' weights stay."""
    batch = random_pair(8, missing=0.4).folded
    unknown = ~batch.sampled.isfinite()
    wild = replace(batch, logp=torch.where(unknown, batch.logp.detach() - 15, batch.logp.detach()).requires_grad_())
    torch.testing.assert_close(sequence_weights(batch), sequence_weights(wild))
    for objective in (MinPro(), Vcpo()):
        one = torch.autograd.grad(objective(batch)[0], batch.logp)[0]
        other = torch.autograd.grad(objective(wild)[0], wild.logp)[0]
        torch.testing.assert_close(one[~unknown], other[~unknown])
