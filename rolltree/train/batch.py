"""From a micro-batch and what the policy says about it to what an objective sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rolltree.objective.batch import Batch, Paths
from rolltree.policy.language import PolicyRead
from rolltree.train.pack import Micro


@dataclass(frozen=True, slots=True)
class Anchors:
    """(T,) log-probs of a micro-batch under policies that stay fixed during the step."""

    old: Tensor | None = None
    """Under the weights at the start of the step; None = this is the step's only update, so the current ones."""
    reference: Tensor | None = None
    previous: Tensor | None = None


NO_ANCHORS = Anchors()
"""For a step of one update by an objective that compares with no other policy."""


def objective_batch(
    micro: Micro, read: PolicyRead, anchors: Anchors = NO_ANCHORS, version: int = 0, scale: float = 1.0
) -> Batch:
    """The batch of one micro-batch; `scale` multiplies all weights (a minibatch stands for the whole step)."""
    to = _placer(read.logp)
    old = read.logp.detach() if anchors.old is None else anchors.old
    staleness = np.where(micro.version < 0, -1, version - micro.version)
    return Batch(
        logp=read.logp, old=old, gain=to(micro.gain * scale), loss=to(micro.loss * scale),
        weight=to(micro.weight * scale), sampled=to(micro.sampled), reference=anchors.reference,
        entropy=read.entropy, staleness=torch.from_numpy(staleness).to(old.device), previous=anchors.previous,
        forced=torch.from_numpy(micro.forced).to(old.device), logits=read.logits, paths=_paths(micro, to, scale),
    )  # fmt: skip


def _paths(micro: Micro, to: Callable[[Any], Tensor], scale: float) -> Paths | None:
    p = micro.paths
    if p is None:
        return None
    assert micro.group is not None
    whole = [torch.from_numpy(a).to(to(p.weight).device) for a in (p.index, p.path, micro.group)]
    share = None if p.share is None else to(p.share)
    return Paths(whole[0], whole[1], to(p.advantage), to(p.weight * scale), len(p.weight), whole[2], share)


def _placer(like: Tensor) -> Callable[[Any], Tensor]:
    return lambda array: torch.from_numpy(np.asarray(array)).to(like.device, like.dtype)
