"""Rolltree's objectives as verl's policy losses.

verl calls a loss with log-probs, advantages and a mask (rollouts × tokens), a mode of averaging and its configuration.
Here every rollout is a path of its own and verl's averaging becomes the weights, so a loss is the objective on the
flat batch. What verl does not pass on (reference or sampled log-probs, entropies, ages) cannot be asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from rolltree.integrations.errors import AdaptError
from rolltree.objective.batch import Batch, Objective, Paths, step_wide
from rolltree.objective.registry import load_objective

PolicyLoss = Callable[..., tuple[Tensor, dict[str, Any]]]


def policy_loss(objective: str | Objective, **knobs: Any) -> PolicyLoss:
    """An objective as a function in verl's signature: the loss and numbers named `actor/…`."""
    made = load_objective(objective, **knobs) if isinstance(objective, str) else objective
    who = f"the objective {objective if isinstance(objective, str) else type(made).__name__}"
    if made.needs:
        raise AdaptError(
            f"{who} needs {', '.join(sorted(made.needs))}, which verl does not pass to a policy loss; choose an "
            "objective of log-probs and advantages alone, and verl's own KL and entropy terms and rollout correction"
        )
    if step_wide(made):
        raise AdaptError(
            f"{who} has a statistic of the whole step, and verl calls a policy loss once per micro-batch; train it "
            "with `rolltree train`"
        )

    def loss(
        old_log_prob: Tensor, log_prob: Tensor, advantages: Tensor, response_mask: Tensor,
        loss_agg_mode: str = "token-mean", config: Any = None, rollout_is_weights: Tensor | None = None, **_: Any,
    ) -> tuple[Tensor, dict[str, Any]]:  # fmt: skip
        mask = response_mask > 0
        info: Mapping[str, Any] = {} if config is None else config.global_batch_info
        corrected = advantages if rollout_is_weights is None else advantages * rollout_is_weights
        batch = _batch(old_log_prob, log_prob, corrected, mask, row_weights(mask, loss_agg_mode, info))
        value, numbers = made(batch)
        with torch.no_grad():
            moved = (batch.old - batch.logp).mean() if len(batch.logp) else value.new_zeros(())
        told = {name: float(number.detach().float().mean()) for name, number in numbers.items()}
        return value, {f"actor/{name}": number for name, number in told.items()} | {"actor/ppo_kl": float(moved)}

    return loss


def register_objective(name: str, objective: str | Objective, **knobs: Any) -> str:
    """Register an objective in verl as `rolltree_NAME`; choose it with `actor.policy_loss.loss_mode=rolltree_NAME`."""
    try:
        from verl.trainer.ppo.core_algos import register_policy_loss  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise AdaptError(f"registering objectives needs verl ({error}): pip install verl") from None
    registered = f"rolltree_{name}"
    register_policy_loss(registered)(policy_loss(objective, **knobs))
    return registered


def row_weights(mask: Tensor, mode: str, info: Mapping[str, Any]) -> Tensor:
    """(rows,) what each masked token of a row weighs under one of verl's modes of averaging.

    `info` is verl's `global_batch_info`: counts of the whole batch over all ranks, where a micro-batch is a part.
    """
    length = mask.sum(1).double()
    ranks = info.get("dp_size") or 1
    rows = info.get("global_batch_size") or (length > 0).sum()
    tokens = info.get("batch_num_tokens") or length.sum()
    horizon = info.get("loss_scale_factor") or mask.shape[1]
    each = torch.ones_like(length) * ranks
    known = {
        "token-mean": each / tokens, "token-sum": each, "seq-mean-token-sum": each / rows,
        "seq-mean-token-sum-norm": each / rows / horizon, "seq-mean-token-mean": each / rows / (length + 1e-8),
    }  # fmt: skip
    if mode not in known:
        raise AdaptError(f"no averaging {mode!r}: verl has {', '.join(known)}")
    return known[mode]


def _batch(old: Tensor, logp: Tensor, advantages: Tensor, mask: Tensor, weight: Tensor) -> Batch:
    """The rollouts as paths that share nothing; rows without a token are left out."""
    filled = mask.any(1)
    row = torch.repeat_interleave(torch.arange(int(filled.sum()), device=mask.device), mask.sum(1)[filled])
    per_row = weight[filled].to(logp.dtype)
    per_token, advantage = per_row[row], advantages[mask]
    paths = Paths(torch.arange(len(row), device=mask.device), row, advantage, per_row, len(per_row))
    return Batch(
        logp[mask], old[mask].detach(), per_token * advantage.clamp(min=0), per_token * advantage.clamp(max=0),
        per_token, paths=paths,
    )  # fmt: skip
