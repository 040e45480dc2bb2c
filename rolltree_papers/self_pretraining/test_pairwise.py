"""Pairwise preference: the single pair by hand, groups, and what neither pair nor group contributes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Paths
from rolltree.testing.objective import random_pair
from rolltree_papers.self_pretraining.objective import PairwiseLoss, pairs


def suffixes(advantage: list[float], group: list[int]) -> Batch:
    """A shared action 0 and one own action per leaf."""
    n = len(advantage)
    index = torch.tensor([x for leaf in range(n) for x in (0, leaf + 1)])
    path = torch.tensor([leaf for leaf in range(n) for _ in range(2)])
    a = torch.tensor(advantage, dtype=torch.float64)[path]
    weight = torch.full((n,), 1 / (2 * n), dtype=torch.float64)
    paths = Paths(index, path, a, weight, n, torch.tensor(group))
    g = torch.Generator().manual_seed(0)
    logp = (-torch.rand(n + 1, generator=g, dtype=torch.float64)).requires_grad_()
    reference = -torch.rand(n + 1, generator=g, dtype=torch.float64)
    zero = torch.zeros(n + 1, dtype=torch.float64)
    credit = weight[path] * a
    gain, loss = (zero.index_add(0, index, c) for c in (credit.clamp(min=0), credit.clamp(max=0)))
    flat_weight = zero.index_add(0, index, weight[path])
    return Batch(logp, logp.detach(), gain, loss, flat_weight, reference=reference, paths=paths)


def test_best_against_worst_is_dpo_on_the_suffixes() -> None:
    batch = suffixes([1.0, 0.0, -1.0], [0, 0, 0])
    d = (batch.logp - batch.reference)[1:]
    margin = 0.1 * (d[0] - d[2])
    loss, metrics = PairwiseLoss()(batch)
    torch.testing.assert_close(loss, -torch.nn.functional.logsigmoid(margin))
    assert metrics["pair_accuracy"].item() == float(margin > 0)
    (got,) = torch.autograd.grad(loss, batch.logp)
    slope = 0.1 / (1 + math.exp(margin.item()))
    assert got.tolist() == pytest.approx([0.0, -slope, 0.0, slope])  # what both share cancels


def test_every_group_has_its_share_however_many_pairs_it_has() -> None:
    batch = suffixes([1.0, -1.0, 1.0, 1.0, -1.0, -1.0], [7, 7, 3, 3, 3, 3])
    better, worse, weight = pairs(batch.paths, batch.paths.group)
    assert sorted(zip(better.tolist(), worse.tolist(), strict=True)) == [(0, 1), (2, 4), (2, 5), (3, 4), (3, 5)]
    assert weight[better == 0].sum().item() == pytest.approx(1 / 3)
    assert weight[better > 0].sum().item() == pytest.approx(2 / 3)


def test_a_group_without_a_pair_costs_nothing() -> None:
    batch = suffixes([1.0, 1.0, 0.0], [0, 0, 1])
    loss, metrics = PairwiseLoss()(batch)
    loss.backward()
    assert loss.item() == 0.0
    assert batch.logp.grad.abs().max() == 0
    assert metrics["pair_accuracy"].item() == 0.0


def test_a_step_raises_the_margin() -> None:
    batch = suffixes([1.0, -1.0], [0, 0])
    before = PairwiseLoss()(batch)
    (gradient,) = torch.autograd.grad(before[0], batch.logp)
    after = PairwiseLoss()(replace(batch, logp=batch.logp.detach() - gradient))
    assert after[1]["pair_margin"] > before[1]["pair_margin"]


def test_means_do_not_favour_the_longer_candidate() -> None:
    batch = random_pair(4).folded
    shifted = replace(batch, logp=(batch.reference + 0.5).requires_grad_())  # every action gained alike
    assert PairwiseLoss(length_mean=True)(shifted)[1]["pair_margin"].item() == pytest.approx(0.0, abs=1e-12)
    assert abs(PairwiseLoss()(shifted)[1]["pair_margin"].item()) > 1e-3


def test_imitation_adds_the_likelihood_of_the_chosen() -> None:
    batch = suffixes([1.0, -1.0], [0, 0])
    extra = PairwiseLoss(imitate=0.5)(batch)[0] - PairwiseLoss()(batch)[0]
    torch.testing.assert_close(extra, -0.5 * (batch.logp[0] + batch.logp[1]) / 2)


def test_bad_knobs_are_refused() -> None:
    with pytest.raises(ObjectiveError, match="beta=0"):
        PairwiseLoss(beta=0.0)
