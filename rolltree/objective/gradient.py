"""Objectives whose ratio is a constant: plain policy gradients, GPG and CISPO. No action's gradient is ever cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Level, Objective, Paths, need, need_paths
from rolltree.objective.ratio import on_paths, ratio
from rolltree.objective.registry import register
from rolltree.objective.window import share


@register("reinforce")
@dataclass(frozen=True, slots=True)
class Reinforce:
    """−Σ A·log π (Williams 1992). Off-policy it needs a correction: `correction="tis"` is truncated-IS REINFORCE."""

    level: Level = "token"
    skips_idle: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[str]:
        """Nothing."""
        return frozenset()

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss; no metrics."""
        return -((batch.gain + batch.loss) * batch.logp).sum(), {}


@register("cispo")
@dataclass(frozen=True, slots=True)
class Cispo:
    """−Σ sg(clip(r, low, high))·A·log π, r = π/π_old (MiniMax-M1, arXiv 2506.13585, eq. 4–5).

    `low` and `high` are ratios themselves, not distances from one. The paper leaves the lower one off. With
    `unit="sequence"` r is the geometric mean along the path, for all its actions.
    """

    low: float = 0.0
    high: float = 5.0
    unit: Literal["token", "sequence"] = "token"
    skips_idle: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.low <= 1 <= self.high:
            raise ObjectiveError(f"cispo: low={self.low} and high={self.high} are ratios: low ≤ 1 ≤ high, and low ≥ 0")
        if self.unit not in ("token", "sequence"):
            raise ObjectiveError(f"cispo: unit={self.unit!r} must be 'token' or 'sequence'")

    @property
    def level(self) -> Level:
        """Tokens, or paths where they share a ratio."""
        return "token" if self.unit == "token" else "path"

    @property
    def needs(self) -> frozenset[str]:
        """Nothing."""
        return frozenset()

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and the share of weight whose ratio was bounded."""
        moved = (batch.logp - batch.old).detach()
        if self.unit == "sequence":
            paths = need_paths(batch, "cispo(unit='sequence')")
            r = ratio(on_paths(moved, None, paths, "sequence_mean"))
            bounded, weight = r.clamp(self.low, self.high), paths.entry_weight
            loss = -(weight * paths.advantage * bounded * batch.logp[paths.index]).sum()
            return loss, {"ratio_bounded": share(weight, bounded != r)}
        r = ratio(moved)
        bounded = r.clamp(self.low, self.high)
        loss = -((batch.gain + batch.loss) * bounded * batch.logp).sum()
        return loss, {"ratio_bounded": share(batch.weight, bounded != r)}


@register("gpg")
@dataclass(frozen=True, slots=True)
class Gpg:
    """−α Σ A·log π, α = groups / groups with a signal (Group Policy Gradient, arXiv 2504.02546).

    A group whose advantages are all zero adds nothing to the sum but is counted in its average; α takes it out again.
    Batches whose average already leaves such groups out want `reinforce`. `alpha` fixes the factor; nothing then needs
    the groups any more.
    """

    alpha: float | None = None
    level: Level = "path"

    @property
    def needs(self) -> frozenset[str]:
        """Which leaves form a group, until α is known."""
        return frozenset({"group"} if self.alpha is None else ())

    @property
    def step_wide(self) -> bool:
        """Whether α is still to be found."""
        return self.alpha is None

    @property
    def skips_idle(self) -> bool:
        """Whether groups without a signal may be left out: they are counted first."""
        return self.alpha is not None

    def settle(self, groups: int, taught: int) -> Objective:
        """α from how many groups an update has and how many of them have a signal."""
        return replace(self, alpha=_alpha(groups, taught), level="token") if self.alpha is None else self

    def fit(self, batches: Sequence[Batch]) -> Objective:
        """α from the groups of the whole step; a group must not be split over micro-batches."""
        counts = [_groups(batch) for batch in batches]
        return replace(self, alpha=_alpha(sum(n for n, _ in counts), sum(n for _, n in counts)))

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and α."""
        alpha = _alpha(*_groups(batch)) if self.alpha is None else self.alpha
        return -alpha * ((batch.gain + batch.loss) * batch.logp).sum(), {"gpg_alpha": batch.logp.new_tensor(alpha)}


def _alpha(groups: int, with_signal: int) -> float:
    return groups / with_signal if with_signal else 1.0


def _groups(batch: Batch) -> tuple[int, int]:
    paths: Paths = need_paths(batch, "gpg")
    group = need(paths.group, "group", "gpg")
    signal = group[paths.path[paths.advantage != 0]]
    return len(torch.unique(group)), len(torch.unique(signal))
