"""Hint masking and the context-corrected ratio."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Paths
from rolltree.objective.clipped import Clipped
from rolltree.objective.forced import HintMask
from rolltree.objective.registry import load_objective


def hinted() -> Batch:
    """One hint action (0) shared by a good and a bad continuation of one action each."""

    def of(*values: float) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64)

    paths = Paths(torch.tensor([0, 1, 0, 2]), torch.tensor([0, 0, 1, 1]), of(1, 1, -1, -1), of(0.25, 0.25), 2)
    return Batch(
        logp=of(-3, -1, -1).requires_grad_(), old=of(-3, -1, -1), gain=of(0.25, 0.25, 0), loss=of(-0.25, 0, -0.25),
        weight=of(0.5, 0.25, 0.25), entropy=of(2.0, 1.0, 0.5), forced=torch.tensor([True, False, False]), paths=paths,
    )  # fmt: skip


def test_a_hint_that_led_to_a_bad_rollout_is_not_unlearned() -> None:
    batch = hinted()
    (plain,) = torch.autograd.grad(Clipped()(batch)[0], batch.logp)
    assert plain.tolist() == pytest.approx([0.0, -0.25, 0.25])
    (masked,) = torch.autograd.grad(load_objective("clipped", correction="hint_mask")(batch)[0], batch.logp)
    assert masked.tolist() == pytest.approx([-0.25, -0.25, 0.25])


def test_hints_far_from_the_continuation_count_less() -> None:
    corrected, metrics = HintMask(tau=0.5)(hinted())
    assert corrected.gain.tolist() == pytest.approx([0.25 * math.exp(-1.0 / 0.5), 0.25, 0])
    assert corrected.loss.tolist() == pytest.approx([0, 0, -0.25])
    assert metrics["hint_share"].item() == pytest.approx(0.5)


def test_without_hints_nothing_changes(pair) -> None:
    batch = replace(pair.folded, forced=torch.zeros_like(pair.folded.forced))
    for mask in (HintMask(), HintMask(tau=0.1)):
        corrected, _ = mask(batch)
        torch.testing.assert_close(corrected.gain, batch.gain)
        torch.testing.assert_close(corrected.loss, batch.loss)


def test_masking_alone_needs_no_paths_and_agrees_with_paths(pair) -> None:
    with_paths, _ = HintMask()(pair.folded)
    without, _ = HintMask()(replace(pair.folded, paths=None))
    torch.testing.assert_close(with_paths.gain, without.gain)
    torch.testing.assert_close(with_paths.loss, without.loss)
    with pytest.raises(ObjectiveError, match="paths"):
        HintMask(tau=0.1)(replace(pair.folded, paths=None))
    with pytest.raises(ObjectiveError, match="tau"):
        HintMask(tau=0.0)


def test_the_context_corrected_ratio_fades_with_what_the_unaided_policy_would_not_say() -> None:
    """π without the hint 0.001, the distribution with it 0.4: the gradient is 0.0025 of the plain one, not clipped
    away."""
    logp = torch.tensor([math.log(0.001)], dtype=torch.float64, requires_grad=True)
    one = torch.ones(1, dtype=torch.float64)
    batch = Batch(logp, logp.detach(), one, 0 * one, one, sampled=torch.tensor([math.log(0.4)], dtype=torch.float64))
    (got,) = torch.autograd.grad(load_objective("context_corrected")(batch)[0], logp)
    assert got.item() == pytest.approx(-0.0025)
    (down,) = torch.autograd.grad(load_objective("context_corrected")(replace(batch, gain=0 * one, loss=-one))[0], logp)
    assert down.item() == 0.0
