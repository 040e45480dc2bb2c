"""Which rows see which of the runs in a slab, as few batches of attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rolltree.engine.local.batch import Ints
from rolltree.policy.shared import Level
from rolltree.policy.slab import Slab

_EVEN = 3
"""Where places for readers are filled up to more than this many times their number, the slab is read in parts."""


def levels_of(slab: Slab, lengths: Ints, seen: Ints) -> list[Level]:
    """One batch for rows that each see one of the runs (-1 = none); runs with very many readers by themselves.

    The runs are the slab's first rows and have these lengths.
    """
    readers = np.bincount(seen[seen >= 0], minlength=len(lengths))
    if not readers.any():
        return []
    runs, total = int(np.flatnonzero(readers)[-1]) + 1, int(readers.sum())
    if runs * int(readers.max()) <= _EVEN * total:
        return [_level(slab, lengths[:runs], seen, 0)]
    many = np.flatnonzero(readers * runs > _EVEN * total)
    alone = [_level(slab, lengths[run : run + 1], np.where(seen == run, seen, -1), run) for run in many.tolist()]
    rest = np.where(np.isin(seen, many), -1, seen)
    return alone + ([_level(slab, lengths[: int(rest.max()) + 1], rest, 0)] if (rest >= 0).any() else [])


def _level(slab: Slab, lengths: Ints, seen: Ints, first: int) -> Level:
    rows = np.flatnonzero(seen >= 0)
    rows = rows[np.argsort(seen[rows], kind="stable")]
    run = seen[rows] - first
    count = np.bincount(run, minlength=len(lengths))
    most = int(count.max())
    among = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    members, place = np.zeros((len(lengths), most), np.int64), np.zeros(len(seen), np.int64)
    members[run, among], place[rows] = rows, run * most + among
    padding = np.arange(int(lengths.max())) >= lengths[:, None]
    like = slab.keys[0]

    def there(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(like.device)

    hidden = like.new_zeros(padding.shape).masked_fill_(there(padding), -torch.inf)[:, None, None]
    absent = there(seen < 0)[:, None, None] if len(rows) < len(seen) else None
    return Level(slab, first, hidden, there(members), there(place), absent)
