"""GSPO against the formula written per sequence."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rolltree.objective.against import ObjectiveError
from rolltree.objective.sequence import Gspo
from rolltree.testing.objective import random_pair


def written_per_sequence(batch, low: float, high: float) -> torch.Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for leaf in range(batch.paths.count):
        rows = batch.paths.path == leaf
        if not rows.any():
            continue
        actions = batch.paths.index[rows]
        s = (batch.logp[actions] - batch.old[actions]).mean().exp()
        for a in batch.paths.advantage[rows]:
            total = total - batch.paths.weight[leaf] * torch.minimum(s * a, s.clamp(1 - low, 1 + high) * a)
    return total


@given(seed=st.integers(0, 10_000))
def test_equals_the_formula_per_sequence(seed: int) -> None:
    batch = random_pair(seed).folded
    expected = written_per_sequence(batch, 0.1, 0.2)
    loss, _ = Gspo(0.1, 0.2)(batch)
    torch.testing.assert_close(loss, expected)
    (got,) = torch.autograd.grad(loss, batch.logp)
    (wanted,) = torch.autograd.grad(expected, batch.logp)
    torch.testing.assert_close(got, wanted)


@given(seed=st.integers(0, 10_000))
def test_gspo_token_agrees_when_a_path_has_one_advantage(seed: int) -> None:
    batch = random_pair(seed, one_advantage=True).folded
    plain, token = Gspo(0.1, 0.2)(batch)[0], Gspo(0.1, 0.2, token_gradient=True)(batch)[0]
    torch.testing.assert_close(plain, token)
    torch.testing.assert_close(torch.autograd.grad(plain, batch.logp), torch.autograd.grad(token, batch.logp))


def test_gspo_token_gives_each_action_its_own_advantage() -> None:
    batch = random_pair(5).folded
    plain, token = Gspo(0.9, 9.0)(batch)[0], Gspo(0.9, 9.0, token_gradient=True)(batch)[0]
    torch.testing.assert_close(plain, token)
    ours, theirs = torch.autograd.grad(plain, batch.logp)[0], torch.autograd.grad(token, batch.logp)[0]
    assert not torch.allclose(ours, theirs)


def test_without_paths_it_says_so(pair) -> None:
    from dataclasses import replace

    with pytest.raises(ObjectiveError, match="level='path'"):
        Gspo()(replace(pair.folded, paths=None))
