"""Log-ratio views: what a per-action difference of log-probs Δ = log π − log μ means for an action or a path.

Token views live on the flat actions. Prefix and sequence views live on path entries; an action shared by several paths
has the same prefix ratio on each of them, because a node of a tree has one prefix, but as many sequence ratios as
leaves. Missing behaviour log-probs (NaN) take no part in any view.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Level, Paths, need

View = Literal["token", "prefix_sum", "prefix_min", "prefix_min_inclusive", "sequence_sum", "sequence_mean", "zero"]
VIEWS: tuple[View, ...] = get_args(View)

LIMIT = 20.0
"""Log-ratios are clamped to ±20 before exp, so a lost action costs a bounded number instead of the run."""


def ratio(log_ratio: Tensor) -> Tensor:
    """exp of a log-ratio clamped to ±20."""
    return log_ratio.clamp(-LIMIT, LIMIT).exp()


def behaviour(old: Tensor, sampled: Tensor) -> tuple[Tensor, Tensor]:
    """The log-prob to divide by, and which entries really have one.

    Greedy, forced and spliced actions have no sampling probability (NaN or infinite): they are measured against the
    proximal policy, so they keep an ordinary trust-region ratio but never enter an importance weight.
    """
    known = torch.isfinite(sampled)
    return torch.where(known, sampled, old), known


def on_paths(delta: Tensor, known: Tensor | None, paths: Paths, view: View) -> Tensor:
    """(P,) a view of per-action log-ratios (T,) at every path entry. Unknown entries count as neither 0 nor 1."""
    if view not in VIEWS:
        raise ObjectiveError(f"no log-ratio view {view!r}: choose one of {', '.join(VIEWS)}")
    entries = delta[paths.index]
    if view == "token":
        return entries
    if view == "zero":
        return torch.zeros_like(entries)
    mask = torch.ones_like(entries, dtype=torch.bool) if known is None else known[paths.index]
    if view == "sequence_sum":
        return path_sum(torch.where(mask, entries, 0), paths)[paths.path]
    if view == "sequence_mean":
        return path_mean(entries, paths, mask)[paths.path]
    if view == "prefix_sum":
        return unpad(pad(torch.where(mask, entries, 0), paths, 0.0).cumsum(1), paths)
    return prefix_min(torch.where(mask, entries, torch.inf), paths, inclusive=view == "prefix_min_inclusive")


def path_sum(entries: Tensor, paths: Paths) -> Tensor:
    """(L,) sum of entries (P,) along each path."""
    return torch.zeros(paths.count, dtype=entries.dtype, device=entries.device).index_add(0, paths.path, entries)


def path_mean(entries: Tensor, paths: Paths, mask: Tensor | None = None) -> Tensor:
    """(L,) mean of the (masked) entries of each path; 0 for a path without any."""
    if mask is None:
        return path_sum(entries, paths) / paths.lengths.clamp(min=1)
    count = path_sum(mask.to(entries.dtype), paths)
    return path_sum(torch.where(mask, entries, 0), paths) / count.clamp(min=1)


def prefix_min(entries: Tensor, paths: Paths, *, inclusive: bool) -> Tensor:
    """(P,) running minimum along each path, of the entries before (or up to) each; 0 (a ratio of one) when none is.

    Entries set to +inf are skipped.
    """
    table = pad(entries, paths, torch.inf)
    low = table.cummin(1).values if table.shape[1] else table
    if not inclusive:
        low = torch.cat([torch.full_like(low[:, :1], torch.inf), low[:, :-1]], 1)
    return unpad(torch.where(torch.isinf(low), 0.0, low), paths)


def pad(entries: Tensor, paths: Paths, fill: float) -> Tensor:
    """(L, longest path) entries laid out one path a row."""
    row, column = _place(paths)
    width = int(paths.lengths.max()) if len(paths.path) else 0
    return entries.new_full((paths.count, width), fill).index_put((row, column), entries)


def unpad(table: Tensor, paths: Paths) -> Tensor:
    """The inverse of `pad`."""
    return table[_place(paths)]


def _place(paths: Paths) -> tuple[Tensor, Tensor]:
    lengths = paths.lengths
    start = lengths.cumsum(0) - lengths
    return paths.path, torch.arange(len(paths.path), device=paths.path.device) - start[paths.path]


# Ratios against the distribution that sampled, whatever the surrogate: the proximal policy of stale data is its author.


@dataclass(frozen=True, slots=True)
class Bypass:
    """The batch with log π_sampled in the place of log π_old; actions without one keep π_old.

    On fresh rollouts at temperature 1 the two are the same policy. On stale ones the surrogate's ratio then corrects
    for the staleness as well as for the updates of the step, and its window holds both ("rollout" proximal policy,
    AReaL).
    """

    level: Level = "token"
    skips_idle: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[str]:
        """The sampling distribution."""
        return frozenset({"sampled"})

    def __call__(self, batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
        """The batch around another centre; no metrics."""
        centre, _ = behaviour(batch.old, need(batch.sampled, "sampled", "a bypass of the proximal policy"))
        return replace(batch, old=centre), {}
