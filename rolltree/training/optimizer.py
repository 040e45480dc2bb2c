"""The optimizer of a run: AdamW, its knobs at a step, and its learning rate: a warm-up, then constant or falling.

A learning rate is a function of the update's number alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from rolltree.knobs.varying import Told, settled
from rolltree.policy.device import HALF
from rolltree.policy.protocol import Policy
from rolltree.recipe.recipe import Parts
from rolltree.training.config import Optim, TrainConfig, TrainError

FUSED = ("cpu", "cuda", "xpu", "mps")
"""Devices on which torch has AdamW as one kernel."""


def make_optimizer(policy: Policy, optim: Optim) -> torch.optim.AdamW:
    """AdamW with decay on matrices only, in one kernel where the device has it."""
    coarse = next((p for p in policy.parameters() if p.dtype in HALF), None)
    if coarse is not None:
        kind = str(coarse.dtype).removeprefix("torch.")
        raise TrainError(
            f"the trained weights are {kind}, in which most updates of a small learning rate are rounded away; load "
            "the model in float32 and let dtype=bfloat16 be what it computes in"
        )
    decayed = [p for p in policy.parameters() if p.ndim > 1]
    plain = [p for p in policy.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": optim.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(
        [g for g in groups if g["params"]],
        lr=optim.lr,
        betas=optim.betas,
        eps=optim.eps,
        fused=policy.device.type in FUSED,
    )


def optim_at(config: TrainConfig, parts: Parts, step: int = 0, told: Told | None = None) -> Optim:
    """The run's optimizer knobs under the recipe's overrides, each at its value of the step."""
    return whole_run(settled(replace(config.optim, **dict(parts.optim)), step, told), config)


def learning_rate(optim: Optim, update: int) -> float:
    """Of the update with this number, counted from 1 (cosine: arXiv 1608.03983, eq. 5)."""
    rise = min(1.0, update / max(optim.warmup, 1))
    if optim.lr_schedule == "constant":
        return optim.lr * rise
    if optim.lr_updates is None:
        raise TrainError(f"a {optim.lr_schedule} lr_schedule needs lr_updates, the updates until it has fallen")
    # The update behind the last would be the first at the floor.
    way = min(max(0.0, (update - optim.warmup) / (optim.lr_updates + 1 - optim.warmup)), 1.0)
    left = 1 - way if optim.lr_schedule == "linear" else (1 + math.cos(math.pi * way)) / 2
    return optim.lr * rise * (optim.lr_floor + (1 - optim.lr_floor) * left)


def averaged(mean: Policy, policy: Policy, mass: float, decay: float) -> float:
    """Move averaged weights by one update; returns their new mass (PPO-EWMA, arXiv 2110.00641).

    After updates θ₁…θ_t the mean is Σ decay^(t−i) θ_i / Σ decay^(t−i), from the weights before the first update on.
    """
    now = decay * mass + 1.0
    with torch.no_grad():
        fixed, current, done = mean.state_dict(), policy.state_dict(), set[int]()
        for name, whole in fixed.items():
            held, latest = _own(whole), _own(current[name])
            # Tied weights stand under two names.
            if held.is_floating_point() and held.data_ptr() not in done:
                done.add(held.data_ptr())
                held.lerp_(latest.to(held.dtype), 1.0 / now)
    return now


def _own(value: torch.Tensor) -> torch.Tensor:
    """The part of a weight that this rank holds, both policies being cut alike; where there is one rank, all of it."""
    local: Callable[[], torch.Tensor] | None = getattr(value, "to_local", None)
    return value if local is None else local()


def whole_run(optim: Optim, config: TrainConfig) -> Optim:
    """The knobs with the length of a falling learning rate filled in: all updates that the run's steps can make."""
    if optim.lr_schedule == "constant" or optim.lr_updates is not None:
        return optim
    if optim.minibatch_prompts is not None:
        raise TrainError(
            f"how many updates a run makes is not known where one takes minibatch_prompts={optim.minibatch_prompts} "
            f"prompts, so its {optim.lr_schedule} learning rate needs lr_updates; give that, or a constant one"
        )
    updates = config.steps * optim.epochs * optim.minibatches
    if updates <= optim.warmup:
        raise TrainError(
            f"a run of {updates} updates ends before the warm-up's {optim.warmup} do, so its learning rate cannot "
            "fall; give more steps, or a shorter warmup"
        )
    return replace(optim, lr_updates=updates)
