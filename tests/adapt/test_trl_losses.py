"""VESPO, CISPO over sequences and the off-policy sequence mask against the installed TRL,
in value and gradient."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rolltree.objective.batch import Batch, Paths
from rolltree.objective.off_policy_mask import OffPolicyMask
from rolltree.objective.registry import load_objective

trl = pytest.importorskip("trl.trainer.grpo_trainer")

SHAPE = (6, 5)
GAMMA = trl.GRPOTrainer.get_gamma_weights
DEFAULTS = SimpleNamespace(**{f.name: f.default for f in fields(trl.GRPOConfig)})


def rows(seed: int, apart: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-probs now, at the start of the step and as sampled, advantages, and which tokens are there."""
    g = torch.Generator().manual_seed(seed)
    old = -torch.rand(SHAPE, generator=g, dtype=torch.float64) * 3
    now = old + apart * torch.randn(SHAPE, generator=g, dtype=torch.float64)
    sampled = old + apart * torch.randn(SHAPE, generator=g, dtype=torch.float64)
    advantage = torch.randn(SHAPE[0], 1, generator=g, dtype=torch.float64)
    lengths = torch.randint(1, SHAPE[1] + 1, (SHAPE[0], 1), generator=g)
    return now, old, sampled, advantage, (torch.arange(SHAPE[1])[None] < lengths).double()


def packed(
    now: torch.Tensor, old: torch.Tensor, sampled: torch.Tensor, advantage: torch.Tensor, mask: torch.Tensor
) -> Batch:  # fmt: skip
    """The same rows as a batch whose average is over tokens."""
    there = mask.bool()
    each = (advantage * mask)[there]
    weight = torch.full_like(each, 1 / float(mask.sum()))
    path = torch.arange(SHAPE[0])[:, None].expand(SHAPE)[there]
    paths = Paths(torch.arange(len(each)), path, each, weight[:1].expand(SHAPE[0]), SHAPE[0])
    return Batch(
        now[there], old[there], weight * each.clamp(min=0), weight * each.clamp(max=0), weight, sampled=sampled[there],
        paths=paths,
    )  # fmt: skip


def whole(
    now: torch.Tensor, old: torch.Tensor, advantage: torch.Tensor, mask: torch.Tensor, **knobs: Any
) -> torch.Tensor:  # fmt: skip
    """The loss that TRL's trainer computes from these rows, averaged over tokens, in evaluation."""
    there = torch.ones(SHAPE[0], 1, dtype=torch.long)
    alone = SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x)
    settings: dict[str, Any] = {
        "aux_loss_enabled": False, "top_entropy_quantile": 1.0, "off_policy_mask_threshold": None, "beta": 0.0,
        "use_vllm": False, "importance_sampling_level": "token", "epsilon_low": 0.2, "accelerator": alone,
        "_metrics": defaultdict(lambda: defaultdict(list)), "model": SimpleNamespace(training=False),
        "_entropy_bonus_enabled": False,
        "_get_per_token_logps_and_entropies": lambda *_, **__: (now, torch.zeros_like(now), None),
    }  # fmt: skip
    trainer = SimpleNamespace(**settings | knobs)
    inputs = {
        "prompt_ids": there, "prompt_mask": there, "completion_ids": torch.ones(SHAPE, dtype=torch.long),
        "completion_mask": mask, "advantages": advantage, "old_per_token_logps": old, "num_items_in_batch": mask.sum(),
    }  # fmt: skip
    return trl.GRPOTrainer._compute_loss(trainer, None, inputs)


@pytest.mark.parametrize("apart", [0.0, 0.3, 2.0, 12.0])
@pytest.mark.parametrize("seed", range(5))
def test_vespo_is_trls(seed: int, apart: float) -> None:
    now, old, sampled, advantage, mask = rows(seed, apart)
    now.requires_grad_()
    theirs = whole(now, old, advantage, mask, loss_type="vespo", args=DEFAULTS, get_gamma_weights=GAMMA)
    ours, _ = load_objective("vespo")(packed(now, old, sampled, advantage, mask))
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(loss, now, retain_graph=True)[0] for loss in (ours, theirs)))


def test_vespo_against_the_distribution_that_sampled_is_trls_with_its_correction() -> None:
    now, old, sampled, advantage, mask = rows(7, 0.2)
    correction = torch.where(mask.bool(), (old - sampled).exp(), 1.0)
    gamma = GAMMA(advantage, now - old, mask, correction)
    theirs = (-gamma * advantage * now * mask).sum() / mask.sum()
    ours, _ = load_objective("vespo", correction="bypass")(packed(now, old, sampled, advantage, mask))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("threshold", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("seed", range(5))
def test_the_off_policy_mask_is_trls(seed: int, threshold: float) -> None:
    now, old, sampled, advantage, mask = rows(seed, 0.4)
    now.requires_grad_()
    kept = trl.GRPOTrainer.get_off_policy_mask(advantage, now, sampled, mask, threshold)
    theirs = (-advantage * now * mask * kept).sum() / mask.sum()
    objective = load_objective("reinforce", correction=OffPolicyMask(threshold))
    ours, metrics = objective(packed(now, old, sampled, advantage, mask))
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(loss, now, retain_graph=True)[0] for loss in (ours, theirs)))
    assert metrics["rejected"].item() == pytest.approx(((1 - kept) * mask).sum().item() / mask.sum().item())


@pytest.mark.parametrize("high", [1.02, 1.2])
@pytest.mark.parametrize("seed", range(5))
def test_cispo_over_sequences_is_trls(seed: int, high: float) -> None:
    now, old, sampled, advantage, mask = rows(seed, 0.4)
    now.requires_grad_()
    knobs = {"loss_type": "cispo", "epsilon_high": high, "importance_sampling_level": "sequence"}
    theirs = whole(now, old, advantage, mask, **knobs)
    ours, metrics = load_objective("cispo", unit="sequence", high=high)(packed(now, old, sampled, advantage, mask))
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(loss, now, retain_graph=True)[0] for loss in (ours, theirs)))
    assert 0 < metrics["ratio_bounded"].item() < 1


def test_an_action_without_a_sampling_probability_says_nothing_about_its_path() -> None:
    now, old, sampled, advantage, mask = rows(1, 0.0)
    advantage = -advantage.abs()
    far = sampled.clone()
    far[:, 0] = math.nan  # the first of each row was forced
    far[0, 1:] += 1.0
    _, metrics = OffPolicyMask(0.7)(packed(now, old, far, advantage, mask))
    expected = mask[0].sum() if mask[0].sum() > 1 else 0.0
    assert metrics["rejected"].item() == pytest.approx(float(expected / mask.sum()))


def test_vespo_refuses_a_hump_that_never_fades() -> None:
    with pytest.raises(ValueError, match="fades"):
        load_objective("vespo", fade_gain=0.0)
