"""The clipped surrogate: the paper's cases by hand, the two-channel identity, neutral elements, gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rolltree.errors import RolltreeError
from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch
from rolltree.objective.clipped import Clipped
from rolltree.objective.registry import load_objective
from rolltree.testing.objective import random_pair


def one_action(ratio: float, advantages: list[float]) -> Batch:
    a = torch.tensor(advantages, dtype=torch.float64)
    return Batch(
        logp=torch.tensor([ratio], dtype=torch.float64).log().requires_grad_(),
        old=torch.zeros(1, dtype=torch.float64),
        gain=a.clamp(min=0).sum()[None],
        loss=a.clamp(max=0).sum()[None],
        weight=torch.tensor([float(len(a))], dtype=torch.float64),
    )


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope"),
    [
        (1.1, 2.0, 2.2, 2.2),  # inside
        (1.5, 2.0, 2.4, 0.0),  # above with A > 0: held at 1.2
        (0.5, 2.0, 1.0, 1.0),  # below with A > 0: free
        (0.5, -2.0, -1.6, 0.0),  # below with A < 0: held at 0.8
        (1.5, -2.0, -3.0, -3.0),  # above with A < 0: free
        (9.0, -2.0, -6.0, 0.0),  # dual clip at 3
        (9.0, 0.0, 0.0, 0.0),
    ],
)
def test_cases_by_hand(ratio: float, advantage: float, value: float, slope: float) -> None:
    batch = one_action(ratio, [advantage])
    loss, metrics = Clipped(0.2, 0.2, dual=3.0)(batch)
    assert metrics["clip_dual"].item() == float(ratio > 3 and advantage < 0)
    loss.backward()
    assert -loss.item() == pytest.approx(value)
    assert batch.logp.grad is not None
    assert -batch.logp.grad.item() == pytest.approx(slope)


@given(seed=st.integers(0, 10_000), dual=st.sampled_from([None, 1.5, 3.0]))
def test_folded_equals_every_path_written_out(seed: int, dual: float | None) -> None:
    """Σ_i min(r·A_i, clip(r)·A_i), dual-clipped per path, in value and in gradient."""
    both = random_pair(seed)
    paths = both.folded.paths
    assert paths is not None
    r = (both.folded.logp - both.folded.old).exp()[paths.index]
    a = paths.advantage
    plain = torch.minimum(r * a, r.clamp(0.8, 1.28) * a)
    if dual is not None:
        plain = torch.where(a < 0, torch.maximum(plain, dual * a), plain)
    expected = -(paths.weight[paths.path] * plain).sum()
    loss, _ = Clipped(0.2, 0.28, dual)(both.folded)
    (wanted,) = torch.autograd.grad(expected, both.folded.logp, retain_graph=True)
    (got,) = torch.autograd.grad(loss, both.folded.logp)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(got, wanted)


def test_a_shared_action_may_be_clipped_on_one_side_only() -> None:
    batch = one_action(1.5, [2.0, -1.0])
    loss, metrics = Clipped()(batch)
    loss.backward()
    assert -loss.item() == pytest.approx(2.0 * 1.2 - 1.5)
    assert batch.logp.grad is not None
    assert -batch.logp.grad.item() == pytest.approx(-1.5)
    assert metrics["clip_high"].item() == 1.0
    assert metrics["clip_low"].item() == 0.0


def test_at_ratio_one_the_gradient_is_reinforce(pair) -> None:
    batch = replace(pair.folded, old=pair.folded.logp.detach())
    (got,) = torch.autograd.grad(Clipped()(batch)[0], batch.logp)
    torch.testing.assert_close(got, -(batch.gain + batch.loss), rtol=0, atol=0)


def test_against_sampled_divides_by_the_sampling_distribution_where_there_is_one() -> None:
    both = random_pair(3, missing=0.3)
    batch = both.folded
    assert batch.sampled is not None
    centre = torch.where(batch.sampled.isnan(), batch.old, batch.sampled)
    loss, _ = Clipped(against="sampled")(batch)
    expected, _ = Clipped()(replace(batch, old=centre))
    assert loss.item() == expected.item()
    with pytest.raises(ObjectiveError, match="sampled"):
        Clipped(against="sampled")(replace(batch, sampled=None))


def test_a_batch_without_actions_costs_nothing_and_can_be_differentiated() -> None:
    empty = torch.zeros(0, dtype=torch.float64)
    loss, metrics = Clipped()(Batch(empty.clone().requires_grad_(), empty, empty, empty, empty))
    loss.backward()
    assert loss.item() == 0.0
    assert all(torch.isfinite(value) for value in metrics.values())


def test_neutral_knobs_return_the_bare_surrogate() -> None:
    assert load_objective("clipped", kl=0.0, entropy_bonus=0.0, correction=()) == Clipped()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: load_objective("cliped"), "did you mean 'clipped'"),
        (lambda: load_objective("clipped", clip_hihg=0.3), "did you mean 'clip_high'"),
        (lambda: load_objective("clipped", correction="tiss"), "did you mean 'tis'"),
        (lambda: load_objective("clipped", clip_low=1.5), r"clip_low=1\.5"),
        (lambda: load_objective("clipped", dual=1.1), r"dual clip 1\.1"),
        (lambda: load_objective("clipped", kl=0.1, kl_estimator="k4"), "k4"),
        (lambda: load_objective("clipped", against="ref"), "against='ref'"),
    ],
)
def test_bad_knobs_say_what_to_do(call, words: str) -> None:
    with pytest.raises(RolltreeError, match=words):
        call()
