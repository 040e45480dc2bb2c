"""VESPO, CISPO and SAPO over sequences, products clipped as in RLOO, and the off-policy sequence mask: each against the
installed TRL, in value and gradient."""

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
    now: torch.Tensor, old: torch.Tensor, sampled: torch.Tensor, advantage: torch.Tensor, mask: torch.Tensor,
    average: str = "token",
) -> Batch:  # fmt: skip
    """The same rows as a batch, averaged over tokens or over rows."""
    there = mask.bool()
    each = (advantage * mask)[there]
    length = mask.sum(1)
    rows = torch.ones_like(length) / mask.sum() if average == "token" else 1 / length / SHAPE[0]
    weight = rows[:, None].expand(SHAPE)[there]
    path = torch.arange(SHAPE[0])[:, None].expand(SHAPE)[there]
    paths = Paths(torch.arange(len(each)), path, each, rows, SHAPE[0])
    return Batch(
        now[there], old[there], weight * each.clamp(min=0), weight * each.clamp(max=0), weight, sampled=sampled[there],
        paths=paths,
    )  # fmt: skip


def whole(
    now: torch.Tensor, old: torch.Tensor, advantage: torch.Tensor, mask: torch.Tensor, **knobs: Any
) -> torch.Tensor:  # fmt: skip
    """The loss that TRL's trainer computes from these rows, averaged over tokens, in evaluation."""
    alone = SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x)
    settings: dict[str, Any] = {
        "aux_loss_enabled": False, "top_entropy_quantile": 1.0, "off_policy_mask_threshold": None, "beta": 0.0,
        "use_vllm": False, "importance_sampling_level": "token", "epsilon_low": 0.2, "accelerator": alone,
        "_metrics": defaultdict(lambda: defaultdict(list)), "model": SimpleNamespace(training=False),
        "_entropy_bonus_enabled": False,
        "_get_per_token_logps_and_entropies": lambda *_, **__: (now, torch.zeros_like(now), None),
    }  # fmt: skip
    trainer = SimpleNamespace(**settings | knobs)
    given = inputs(advantage, mask) | {"old_per_token_logps": old, "num_items_in_batch": mask.sum()}
    return trl.GRPOTrainer._compute_loss(trainer, None, given)


def inputs(advantage: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """What both trainers are given with a batch."""
    there = torch.ones(SHAPE[0], 1, dtype=torch.long)
    ids = torch.ones(SHAPE, dtype=torch.long)
    return {"prompt_ids": there, "prompt_mask": there, "completion_ids": ids, "completion_mask": mask,
            "advantages": advantage}  # fmt: skip


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


@pytest.mark.parametrize("seed", range(5))
def test_sapo_over_sequences_is_trls(seed: int) -> None:
    now, old, sampled, advantage, mask = rows(seed, 0.6)
    now.requires_grad_()
    theirs = whole(now, old, advantage, mask, loss_type="sapo", importance_sampling_level="sequence", args=DEFAULTS)
    batch = packed(now, old, sampled, advantage, mask, "sequence")
    ours, _ = load_objective("sapo", unit="sequence")(batch)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(loss, now, retain_graph=True)[0] for loss in (ours, theirs)))


@pytest.mark.parametrize("seed", range(5))
def test_gspo_of_products_is_trls_rloo(seed: int) -> None:
    rloo = pytest.importorskip("trl.trainer.rloo_trainer").RLOOTrainer
    now, old, sampled, advantage, mask = rows(seed, 0.2)
    now.requires_grad_()
    alone = SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x)
    trainer = SimpleNamespace(
        aux_loss_enabled=False, epsilon_low=0.2, epsilon_high=0.3, accelerator=alone,
        model=SimpleNamespace(training=False), _metrics=defaultdict(lambda: defaultdict(list)),
        _get_per_token_logps_and_entropies=lambda *_, **__: (now, torch.zeros_like(now), None),
    )  # fmt: skip
    theirs = rloo._compute_loss(trainer, None, inputs(advantage[:, 0], mask) | {"old_logps": (old * mask).sum(1)})
    batch = packed(now, old, sampled, advantage, mask, "sequence")
    ours, metrics = load_objective("gspo", product=True, clip_low=0.2, clip_high=0.3)(batch)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(loss, now, retain_graph=True)[0] for loss in (ours, theirs)))
    assert metrics["clip_low"].item() + metrics["clip_high"].item() > 0


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
