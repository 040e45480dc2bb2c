"""Forced actions with a shaped weight instead of a clip: what another policy wrote, learned where it is unlikely.

LUFFY's (arXiv 2504.14945), for SCOPE's repaired steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, where

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Level, need, need_paths
from rolltree.objective.correction import with_entries
from rolltree.objective.ratio import path_mean
from rolltree.objective.window import share

# Hinted rollouts: which forced actions teach, and how much (ADHint, arXiv 2512.13095).


@dataclass(frozen=True, slots=True)
class HintMask:
    """Forced actions get no negative credit; with `tau`, less credit the more their entropy leaves the continuation's.

    Selective masking: a hint that led to a bad rollout is not unlearned; its `loss` channel is zero. Consistency: the
    credit of a hint action is multiplied by exp(−|H_t − mean H of the path's own actions|/τ); the paper states that the
    gradient fades with the gap, the exponential form is ours. It works under any surrogate, as a correction does.
    """

    tau: float | None = None
    skips_idle: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.tau is not None and self.tau <= 0:
            raise ObjectiveError(f"hint mask: tau={self.tau} must be > 0, or None for masking alone")

    @property
    def level(self) -> Level:
        """`path` when hints are compared with each path's continuation."""
        return "token" if self.tau is None else "path"

    @property
    def needs(self) -> frozenset[str]:
        """Which actions were forced, and entropies to compare."""
        return frozenset({"forced"} if self.tau is None else {"forced", "entropy"})

    def __call__(self, batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
        """The batch with the hints' credit reduced, and the share of weight that hints have."""
        forced = need(batch.forced, "forced", "a hint mask")
        metrics = {"hint_share": share(batch.weight, forced)}
        if batch.paths is None and self.tau is None:
            return replace(batch, loss=torch.where(forced, 0, batch.loss)), metrics
        paths = need_paths(batch, "a hint mask with tau")
        hinted = forced[paths.index]
        advantage = torch.where(hinted, paths.advantage.clamp(min=0), paths.advantage)
        if self.tau is not None:
            entropy = need(batch.entropy, "entropy", "a hint mask with tau").detach()[paths.index]
            gap = (entropy - path_mean(entropy, paths, ~hinted)[paths.path]).abs()
            advantage = torch.where(hinted, advantage * (-gap / self.tau).exp(), advantage)
        return with_entries(batch, advantage), metrics


@dataclass(frozen=True, slots=True)
class ShapedForced:
    """The gradient of A·f(π) with f(π) = π/(π + γ) on forced actions, at the policy that the step began with.

    f'(π)·π = γπ/(π + γ)²: the credit of a forced action is multiplied by it, so that an action the policy already takes
    and one it never takes teach less than those between. The surrogate's ratio is 1 at a step's first update, where
    nothing is clipped. It works under any surrogate of tokens, as a correction does.
    """

    gamma: float = 0.1
    skips_idle: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.gamma <= 0:
            raise ObjectiveError(f"shaped forced actions: gamma={self.gamma} must be > 0")

    @property
    def level(self) -> Level:
        """Single actions."""
        return "token"

    @property
    def needs(self) -> frozenset[str]:
        """Which actions were forced."""
        return frozenset({"forced"})

    def __call__(self, batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
        """The batch with forced actions weighted, and the share of weight that they have."""
        forced = need(batch.forced, "forced", "shaping forced actions")
        likely = batch.old.exp()
        weight = where(forced, self.gamma * likely / (likely + self.gamma) ** 2, 1.0)
        shaped = replace(batch, gain=batch.gain * weight, loss=batch.loss * weight)
        return shaped, {"forced_share": share(batch.weight, forced)}
