"""Attention of rows whose texts begin alike: what several rows share is read once for all of them.

A row sees runs of text that it shares with others, then its own columns. Each part has its softmax and the logarithm of
its mass; from these the softmax over all parts follows exactly (Dao et al. 2022, arXiv 2205.14135).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rolltree.policy.device import HALF
from rolltree.policy.slab import Slab


@dataclass(frozen=True, slots=True)
class Level:
    """Neighbouring runs of a slab, and the rows that see them; a row sees one of them or none."""

    slab: Slab
    first: int
    """The slab's row in which the first of the runs stands."""
    hidden: Tensor
    """(runs, 1, 1, columns): what of each run is padding, as a mask to add."""
    members: Tensor
    """(runs, most): the rows that see each run; padding repeats any row."""
    place: Tensor
    """(rows,): where among all members a row stands."""
    absent: Tensor | None
    """(rows, 1, 1): whether a row sees none of the runs; None where all do."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What stands before the own columns of some rows."""

    base: Tensor
    """(rows,): the position at which each row's own columns begin."""
    most: int
    """The largest of these."""
    levels: tuple[Level, ...]


def attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, layer: int, shared: Shared) -> Tensor:
    """Attention of q (rows, new, heads, dim) over own columns and shared runs -> (rows, new, heads · value dim).

    `mask` (rows, 1, new, columns) is added to the scores of the own columns.
    """
    rows, new, _, dim = q.shape
    heads = keys.shape[1]
    q = q.view(rows, new, heads, -1, dim)
    out, mass = _part(q.transpose(1, 2), keys, values, mask.unsqueeze(3))
    for level in shared.levels:
        part = slice(level.first, level.first + len(level.members))
        columns = level.hidden.shape[-1]
        k, v = (store[layer][part, :, :columns] for store in (level.slab.keys, level.slab.values))
        asked = q[level.members].permute(0, 3, 1, 2, 4, 5).flatten(2, 3)
        theirs, weight = _part(asked, k, v, level.hidden.unsqueeze(3))
        theirs, weight = (_returned(x, level, new) for x in (theirs, weight))
        if level.absent is not None:
            weight = weight.masked_fill(level.absent.unsqueeze(-1).unsqueeze(-1), -torch.inf)
        out = torch.lerp(out, theirs, torch.sigmoid(weight - mass))
        mass = torch.logaddexp(mass, weight)
    return out.transpose(1, 2).reshape(rows, new, -1).to(values.dtype)


def _part(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Of queries (batch, heads, new, repeats, dim) over keys (batch, heads, columns, dim): the mixed values and the
    logarithm of the mass, each (batch, heads, new, repeats, …)."""
    batch, heads, new, repeats, dim = q.shape
    columns = keys.shape[2]
    score = torch.bmm(
        q.reshape(batch * heads, new * repeats, dim), keys.reshape(batch * heads, columns, dim).transpose(1, 2)
    ).view(batch, heads, new, repeats, columns)
    if score.dtype in HALF:
        score = score.float()
    score = torch.add(mask, score, alpha=dim**-0.5)
    share = score.softmax(-1)
    # The largest share belongs to the largest score, so the mass follows without another exponential of all scores.
    mass = score.amax(-1, keepdim=True) - share.amax(-1, keepdim=True).log_()
    mixed = torch.bmm(
        share.view(batch * heads, new * repeats, columns).to(values.dtype), values.reshape(batch * heads, columns, -1)
    )
    return mixed.view(batch, heads, new, repeats, -1).to(score.dtype), mass


def _returned(x: Tensor, level: Level, new: int) -> Tensor:
    """From (runs, heads, most · new, repeats, …) back to rows: (rows, heads, new, repeats, …)."""
    runs, heads, _, repeats, dim = x.shape
    by_member = x.view(runs, heads, -1, new, repeats, dim).transpose(1, 2).flatten(0, 1)
    return by_member.index_select(0, level.place)
