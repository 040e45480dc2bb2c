"""The learning rate of an update: a warm-up, then constant or falling. A function of the update's number alone."""

from __future__ import annotations

import math
from dataclasses import replace

from rolltree.train.config import Optim, TrainConfig, TrainError


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


def whole_run(optim: Optim, config: TrainConfig) -> Optim:
    """The knobs with the length of a falling learning rate filled in: all updates that the run's steps can make."""
    if optim.lr_schedule == "constant" or optim.lr_updates is not None:
        return optim
    updates = config.steps * optim.epochs * optim.minibatches
    if updates <= optim.warmup:
        raise TrainError(
            f"a run of {updates} updates ends before the warm-up's {optim.warmup} do, so its learning rate cannot "
            "fall; give more steps, or a shorter warmup"
        )
    return replace(optim, lr_updates=updates)
