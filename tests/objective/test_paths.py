"""GMPO, MinPRO and VCPO against formulas written per sequence, with loops."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rolltree.objective.registry import load_objective
from rolltree.objective.sequence import Gmpo
from rolltree.objective.staleness import sequence_weights
from rolltree.testing.objective import random_pair


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


@pytest.mark.papers("minpro", "vcpo")
@pytest.mark.parametrize("name", ["minpro", "vcpo"])
def test_forced_actions_never_enter_a_weight(name: str) -> None:
    """Whatever stands in `old` and `logp` of an action without a sampling probability, other actions' weights stay."""
    batch = random_pair(8, missing=0.4).folded
    unknown = ~batch.sampled.isfinite()
    wild = replace(batch, logp=torch.where(unknown, batch.logp.detach() - 15, batch.logp.detach()).requires_grad_())
    torch.testing.assert_close(sequence_weights(batch), sequence_weights(wild))
    objective = load_objective(name)
    one = torch.autograd.grad(objective(batch)[0], batch.logp)[0]
    other = torch.autograd.grad(objective(wild)[0], wild.logp)[0]
    torch.testing.assert_close(one[~unknown], other[~unknown])
