"""Objectives as verl's policy losses: the same loss and gradient as verl's own functions, in every averaging."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from rolltree.integrations.errors import AdaptError
from rolltree.integrations.verl import policy_loss, register_objective
from rolltree.integrations.verl.objectives import row_weights

MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")


def batch(seed: int = 0, rows: int = 5, length: int = 7):
    """Log-probs that moved, advantages of either sign that change along a row, holes in the mask, one empty row."""
    chance = torch.Generator().manual_seed(seed)
    old = -torch.rand(rows, length, generator=chance, dtype=torch.float64) * 3
    logp = (old + 0.6 * torch.randn(rows, length, generator=chance, dtype=torch.float64)).requires_grad_()
    advantages = torch.randn(rows, length, generator=chance, dtype=torch.float64)
    mask = (torch.rand(rows, length, generator=chance) < 0.7).long()
    mask[:, 0], mask[-1] = 1, 0
    return old, logp, advantages, mask


def run(loss, old, logp, advantages, mask, **more):
    value, numbers = loss(old, logp, advantages, mask, **more)
    (gradient,) = torch.autograd.grad(value, logp)
    return value.detach(), gradient, numbers


@pytest.mark.parametrize("mode", MODES)
def test_the_weights_are_the_averaging_written_out(mode):
    mask = torch.tensor([[1, 1, 0, 0], [1, 0, 1, 1], [0, 0, 0, 0]]) > 0
    tokens = {
        "token-mean": [1 / 5, 1 / 5], "token-sum": [1, 1], "seq-mean-token-sum": [1 / 2, 1 / 2],
        "seq-mean-token-sum-norm": [1 / 8, 1 / 8], "seq-mean-token-mean": [1 / 4, 1 / 6],
    }[mode]  # fmt: skip
    assert row_weights(mask, mode, {})[:2].tolist() == pytest.approx(tokens)


def test_a_step_in_micro_batches_over_ranks_weighs_as_the_whole():
    old, logp, advantages, mask = batch()
    counts = {"batch_num_tokens": int(mask.sum()), "global_batch_size": 4, "loss_scale_factor": 7, "dp_size": 2}
    config = SimpleNamespace(global_batch_info=counts)
    for mode in MODES:
        whole, _ = policy_loss("clipped")(old, logp, advantages, mask, mode)
        parts = [policy_loss("clipped")(old[i], logp[i], advantages[i], mask[i], mode, config)[0]
                 for i in (slice(0, 2), slice(2, 5))]  # fmt: skip
        # Gradients of ranks are averaged afterwards, so each is scaled by how many there are.
        torch.testing.assert_close(sum(parts) / 2, whole)


def test_what_verl_does_not_pass_is_refused_when_the_loss_is_made():
    with pytest.raises(AdaptError, match="needs reference, which verl does not pass"):
        policy_loss("clipped", kl=0.1)
    with pytest.raises(AdaptError, match="needs sampled"):
        policy_loss("clipped", correction="tis")
    with pytest.raises(AdaptError, match="a statistic of the whole step"):
        policy_loss("clip_cov")
    with pytest.raises(AdaptError, match="no averaging 'mean'"):
        policy_loss("clipped")(*batch(), loss_agg_mode="mean")


def test_a_batch_without_a_trained_token_is_no_crash():
    old, logp, advantages, mask = batch()
    value, numbers = policy_loss("clipped")(old, logp, advantages, torch.zeros_like(mask), "token-sum")
    assert (value.item(), numbers["actor/ppo_kl"]) == (0.0, 0.0)


def actor(**knobs):
    pytest.importorskip("verl.trainer.ppo.core_algos", reason="verl is not installed: make test-verl")
    from verl.workers.config import FSDPActorConfig, PolicyLossConfig

    policy = knobs.pop("policy_loss", {})
    return FSDPActorConfig(
        strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, policy_loss=PolicyLossConfig(**policy), **knobs
    )


PAIRS = {
    "vanilla": (("clipped", {"clip_low": 0.2, "clip_high": 0.28, "dual": 3.0}),
                {"clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 3.0}),
    "gspo": (("gspo", {"clip_low": 0.2, "clip_high": 0.3, "token_gradient": True}),
             {"clip_ratio_low": 0.2, "clip_ratio_high": 0.3}),
    "cispo": (("cispo", {"low": 0.8, "high": 1.3}), {"clip_ratio_low": 0.2, "clip_ratio_high": 0.3}),
    "gpg": (("reinforce", {}), {}),
    "sapo": (("sapo", {}), {"policy_loss": {"loss_mode": "sapo"}}),
}  # fmt: skip


# verl's SAPO always averages over sequences of token means, whatever it is asked for.
CASES = [(name, mode) for name in PAIRS for mode in MODES if name != "sapo" or mode == "seq-mean-token-mean"]


@pytest.mark.parametrize(("name", "mode"), CASES)
@pytest.mark.parametrize("weighted", [False, True])
def test_an_objective_is_verls_own_loss_of_the_same_name(name, mode, weighted):
    (objective, knobs), settings = PAIRS[name]
    config = actor(**settings)
    from verl.trainer.ppo.core_algos import get_policy_loss_fn

    for seed in range(3):
        data = batch(seed)
        weights = torch.rand(data[1].shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2
        more = {"rollout_is_weights": weights} if weighted else {}
        theirs, slope, _ = run(get_policy_loss_fn(name), *data, loss_agg_mode=mode, config=config, **more)
        ours, gradient, numbers = run(policy_loss(objective, **knobs), *data, loss_agg_mode=mode, config=config, **more)
        torch.testing.assert_close(gradient, slope, atol=1e-9, rtol=1e-6)
        torch.testing.assert_close(ours, theirs.double(), atol=1e-9, rtol=1e-6)
        assert all(name.startswith("actor/") and math.isfinite(value) for name, value in numbers.items())


def test_the_geometric_mean_is_verls_where_a_row_has_one_advantage():
    config = actor(clip_ratio_low=0.4, clip_ratio_high=0.4)
    from verl.trainer.ppo.core_algos import get_policy_loss_fn

    old, logp, advantages, mask = (part[:-1] for part in batch(4))
    data = (old, logp, advantages[:, :1].expand_as(advantages), mask)
    theirs, slope, _ = run(get_policy_loss_fn("geo_mean"), *data, config=config)
    ours, gradient, _ = run(policy_loss("gmpo"), *data, loss_agg_mode="seq-mean-token-mean", config=config)
    torch.testing.assert_close(gradient, slope, atol=1e-8, rtol=1e-6)
    torch.testing.assert_close(ours, theirs, atol=1e-8, rtol=1e-6)


def test_registered_objectives_are_found_by_verl():
    actor()
    from verl.trainer.ppo.core_algos import get_policy_loss_fn

    name = register_objective("wide", "gspo", clip_low=0.5, clip_high=0.5)
    assert name == "rolltree_wide"
    value, gradient, _ = run(get_policy_loss_fn(name), *batch(), loss_agg_mode="token-mean", config=actor())
    assert torch.isfinite(value)
    assert gradient.any()
