"""What an objective sees: flat tensors over the trained actions of packed trees, and paths over them when it asks.

Every trained action stands once, however many leaves share it. `gain`, `loss` and `weight` already hold the sums over
the leaves below with all averaging folded in, so a token-level objective is a plain sum over actions. A path-level
objective (GSPO, per-sequence windows) gets `paths`: the same actions listed once per leaf.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from torch import Tensor

from rolltree.errors import RolltreeError


class ObjectiveError(RolltreeError, ValueError):
    """A batch lacks what an objective needs; names both and the way out."""


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
    """(L,) averaging weight of the leaf: weights of all its entries are this one."""
    count: int
    """L."""


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
    lag: Tensor | None = None
    """(T,) trainer version minus the version that wrote the action; -1 where unknown."""
    paths: Paths | None = None


Level = Literal["token", "path"]


@runtime_checkable
class Objective(Protocol):
    """A pure function from a batch to a scalar to minimise, with numbers worth logging."""

    @property
    def level(self) -> Level:
        """Whether bounds or ratios belong to an action or to a whole path (then `batch.paths` is given)."""
        ...

    @property
    def needs(self) -> frozenset[str]:
        """Subset of {"reference", "entropy", "sampled", "lag"}."""
        ...

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss (to minimise; the batch's weights sum to one over a step) and metrics (detached)."""
        ...
