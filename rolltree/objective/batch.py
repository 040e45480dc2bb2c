"""What an objective sees: flat tensors over the trained actions of packed trees, and paths over them when it asks.

Every trained action stands once, however many leaves share it. `gain`, `loss` and `weight` already hold the sums over
the leaves below with all averaging folded in, so a token-level objective is a plain sum over actions. A path-level
objective (GSPO, per-sequence windows) gets `paths`: the same actions listed once per leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from rolltree.objective.against import ObjectiveError

# What goes wrong with objectives.


@dataclass(frozen=True, slots=True)
class Paths:
    """Leaves written out over shared actions. P = sum of path lengths, L = leaves."""

    index: Tensor
    """(P,) position of each path's actions in the flat per-action tensors, path after path."""
    path: Tensor
    """(P,) which leaf (0..L-1) each entry belongs to, non-decreasing."""
    advantage: Tensor
    """(P,) advantage of the action on this path."""
    weight: Tensor
    """(L,) averaging weight of the leaf: what each of its entries weighs, times the entry's `share`."""
    count: int
    """L."""
    group: Tensor | None = None
    """(L,) which leaves compete with each other (same prompt, or same fork); pairwise objectives ask for it."""
    share: Tensor | None = None
    """(P,) the part of the leaf's weight that an entry keeps where leaves share the action; None = all of it."""

    @property
    def lengths(self) -> Tensor:
        """(L,) number of entries of each path."""
        return torch.bincount(self.path, minlength=self.count)

    @property
    def entry_weight(self) -> Tensor:
        """(P,) the weight of each entry."""
        whole = self.weight[self.path]
        return whole if self.share is None else whole * self.share

    @property
    def mass(self) -> Tensor:
        """(L,) the weight of all entries of each leaf."""
        if self.share is None:
            return self.weight * self.lengths
        return torch.zeros_like(self.weight).index_add(0, self.path, self.entry_weight)


@dataclass(frozen=True, slots=True)
class Batch:
    """T trained actions. Only `logp` (and `entropy`, when asked for) carries a gradient."""

    logp: Tensor
    """(T,) log-prob under the current weights."""
    old: Tensor
    """(T,) log-prob under the proximal policy: the weights at the start of the step (the clip's centre)."""
    gain: Tensor
    """(T,) sum over leaves of weight · max(A, 0)."""
    loss: Tensor
    """(T,) sum over leaves of weight · min(A, 0)."""
    weight: Tensor
    """(T,) sum over leaves of weight: what penalties are weighted with."""
    sampled: Tensor | None = None
    """(T,) log-prob under the distribution really sampled from, NaN where there is none (greedy, forced, spliced)."""
    reference: Tensor | None = None
    """(T,) log-prob under the reference policy."""
    entropy: Tensor | None = None
    """(T,) entropy of the current next-action distribution, with gradient."""
    staleness: Tensor | None = None
    """(T,) trainer version minus the version that wrote the action; -1 where unknown."""
    previous: Tensor | None = None
    """(T,) log-prob under the weights one step before the proximal ones."""
    ewma: Tensor | None = None
    """(T,) log-prob under the running mean of the weights of all updates before this step."""
    forced: Tensor | None = None
    """(T,) bool: actions a method wrote (hints, splices) that are trained all the same."""
    logits: Tensor | None = None
    """(T, V) logits behind each action, with gradient; only full-distribution objectives ask for them."""
    paths: Paths | None = None

    @property
    def advantage(self) -> Tensor:
        """(T,) advantage averaged over the leaves that share the action; 0 where no leaf counts."""
        weight = self.weight
        return torch.where(weight > 0, (self.gain + self.loss) / torch.where(weight > 0, weight, 1), 0)


OPTIONAL = frozenset({"sampled", "reference", "entropy", "staleness", "previous", "ewma", "forced", "logits", "group"})
"""What an objective may ask for in `needs`: the optional fields of a batch, and `group` of its paths."""

Level = Literal["token", "path"]


def need(value: Tensor | None, field: str, who: str) -> Tensor:
    """The value, or an error naming the objective and what it lacks."""
    if value is None:
        raise ObjectiveError(f"{who} needs `{field}`, which this batch lacks: {_WAY_OUT[field]}")
    return value


def need_paths(batch: Batch, who: str) -> Paths:
    """The paths, or an error naming the objective that asked."""
    if batch.paths is None:
        raise ObjectiveError(f"{who} works on whole paths, but this batch has none: pack with paths for level='path'")
    return batch.paths


_WAY_OUT = {
    "sampled": "let the engine record the log-probs it sampled with",
    "reference": "score the rollouts under a reference policy, or drop the penalty",
    "entropy": "compute entropies in the trainer's forward pass",
    "staleness": "let the engine report the weight version of each action",
    "ewma": "keep a running mean of the weights and score the rollouts under it",
    "previous": "keep the weights of the last step and score the rollouts under them",
    "forced": "pack which actions were written by a method",
    "logits": "pack the full logits of the trained actions",
    "group": "pack which leaves compete with each other",
}


@runtime_checkable
class Objective(Protocol):
    """A pure function from a batch to a scalar to minimise, with numbers worth logging."""

    @property
    def level(self) -> Level:
        """Whether bounds or ratios belong to an action or to a whole path (then `batch.paths` is given)."""
        ...

    @property
    def needs(self) -> frozenset[str]:
        """Subset of `OPTIONAL`: what the batch must carry."""
        ...

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss (to minimise; the batch's weights sum to one over a step) and metrics (detached)."""
        ...


@runtime_checkable
class StepWide(Protocol):
    """An objective with a statistic that must be one number for the whole optimizer step (bounds, quantiles, means).

    Called without `fit`, it takes the statistic from the batch at hand, which is right when that is the whole step.
    """

    def fit(self, batches: Sequence[Batch]) -> Objective:
        """The same objective with its statistic fixed from all micro-batches of the step; nothing keeps a gradient."""
        ...


@runtime_checkable
class CreditWide(Protocol):
    """An objective with a statistic of the update that credit alone decides, so that nothing need be read for it."""

    def settle(self, groups: int, taught: int) -> Objective:
        """The same with its statistic fixed for an update of so many groups, of which so many have an advantage."""
        ...


def fit(objective: Objective, batches: Sequence[Batch]) -> Objective:
    """Fix an objective's step-wide statistics, if it has any: once per optimizer step, before the first backward."""
    return objective.fit(batches) if isinstance(objective, StepWide) else objective


def step_wide(objective: Objective) -> bool:
    """Whether an objective has a statistic to fix, so that a step of several micro-batches must be read once before."""
    return bool(getattr(objective, "step_wide", isinstance(objective, StepWide)))


# Micro-batches seen as one: what a step-wide statistic is computed from.


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
