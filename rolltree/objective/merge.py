"""Micro-batches seen as one: what a step-wide statistic is computed from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rolltree.objective.batch import Batch, Paths


def merge(batches: Sequence[Batch]) -> Batch:
    """One detached batch with the actions and paths of all. A field that any of them lacks is left out.

    Group numbers are kept as they are: they must mean the same in every micro-batch.
    """

    def joined(name: str) -> Tensor | None:
        parts = [getattr(batch, name) for batch in batches]
        present = [part.detach() for part in parts if part is not None]
        return torch.cat(present) if len(present) == len(parts) else None

    def always(name: str) -> Tensor:
        return torch.cat([getattr(batch, name).detach() for batch in batches])

    return Batch(
        logp=always("logp"),
        old=always("old"),
        gain=always("gain"),
        loss=always("loss"),
        weight=always("weight"),
        sampled=joined("sampled"),
        reference=joined("reference"),
        entropy=joined("entropy"),
        staleness=joined("staleness"),
        previous=joined("previous"),
        ewma=joined("ewma"),
        forced=joined("forced"),
        paths=_merge_paths(batches),
    )


def _merge_paths(batches: Sequence[Batch]) -> Paths | None:
    paths = [batch.paths for batch in batches if batch.paths is not None]
    if len(paths) < len(batches):
        return None
    action = leaf = 0
    index: list[Tensor] = []
    path: list[Tensor] = []
    for batch, one in zip(batches, paths, strict=True):
        index.append(one.index + action)
        path.append(one.path + leaf)
        action += len(batch.logp)
        leaf += one.count
    shares = [one.share for one in paths if one.share is not None]
    groups = [one.group for one in paths if one.group is not None]
    return Paths(
        index=torch.cat(index),
        path=torch.cat(path),
        advantage=torch.cat([one.advantage for one in paths]),
        weight=torch.cat([one.weight for one in paths]),
        count=leaf,
        group=torch.cat(groups) if len(groups) == len(paths) else None,
        share=torch.cat(shares) if len(shares) == len(paths) else None,
    )
