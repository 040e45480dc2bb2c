"""Penalties: sampled KL to an anchor policy, and an entropy bonus. Both are weighted with the batch's `weight`.

With d = log π − log π_ref at an action drawn from π, the usual estimators (J. Schulman, "Approximating KL divergence",
2020) mostly have the right value but not the right gradient when differentiated as a loss:

- k1 = d: ∇ = ∇log π, whose mean is zero. It is noise, not a penalty.
- k2 = d²/2: ∇ = d·∇log π, whose mean is the gradient of KL(π‖π_ref). Its value is biased.
- k3 = e^(−d) − 1 + d: ∇ = (1 − e^(−d))·∇log π, whose mean is the gradient of KL(π_ref‖π), the other direction.

Multiplying by the ratio r = π/π_old before differentiating (`weighted`) makes k1 and k3 unbiased for KL(π‖π_ref) also
when the actions come from π_old; k2 then carries an extra k2·∇log π. `docs/objectives.md` has the measured biases.

Nothing bounds d itself, so an action far from the anchor is still pulled back. Above e^20 the exponential of k3 goes on
as its tangent: an action that the policy has lost costs a finite number, and the gradient keeps its direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from torch import Tensor

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, need
from rolltree.objective.ratio import LIMIT, ratio

Estimator = Literal["k1", "k2", "k3"]
Anchor = Literal["reference", "previous", "old"]


class Penalty(Protocol):
    """Something added to an objective's loss."""

    @property
    def needs(self) -> frozenset[str]:
        """What the batch must carry."""
        ...

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The coefficient times the penalty, and metrics."""
        ...


def kl(log_ratio: Tensor, estimator: Estimator) -> Tensor:
    """A per-action KL estimate from log π − log π_ref; its gradient is documented at the head of this module."""
    d = log_ratio
    if estimator == "k1":
        return d
    if estimator == "k2":
        return d.square() / 2
    if estimator == "k3":
        return ratio(-d) * (1 + (-d - LIMIT).relu()) - 1 + d
    raise ObjectiveError(f"no KL estimator {estimator!r}: choose k1, k2 or k3")


@dataclass(frozen=True, slots=True)
class KlPenalty:
    """coefficient · Σ weight · KL estimate to an anchor, optionally times the ratio to the proximal policy."""

    coefficient: float
    estimator: Estimator = "k3"
    anchor: Anchor = "reference"
    weighted: bool = False

    def __post_init__(self) -> None:
        if self.estimator not in get_args(Estimator):
            raise ObjectiveError(f"no KL estimator {self.estimator!r}: choose k1, k2 or k3")
        if self.anchor not in get_args(Anchor):
            raise ObjectiveError(f"no KL anchor {self.anchor!r}: choose {', '.join(get_args(Anchor))}")

    @property
    def needs(self) -> frozenset[str]:
        """The anchor's log-probs; `old` is always there."""
        return frozenset() if self.anchor == "old" else frozenset({self.anchor})

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The penalty and the estimated KL."""
        anchor = batch.old if self.anchor == "old" else need(getattr(batch, self.anchor), self.anchor, "a KL penalty")
        estimate = kl(batch.logp - anchor, self.estimator)
        if self.weighted:
            estimate = ratio(batch.logp - batch.old) * estimate
        total = (batch.weight * estimate).sum()
        return self.coefficient * total, {f"kl_{self.anchor}": total.detach()}


@dataclass(frozen=True, slots=True)
class EntropyBonus:
    """−coefficient · Σ weight · H: a positive coefficient keeps the policy spread out."""

    coefficient: float

    @property
    def needs(self) -> frozenset[str]:
        """Entropies with gradient."""
        return frozenset({"entropy"})

    def __call__(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The bonus (negative) and the weighted mean entropy."""
        total = (batch.weight * need(batch.entropy, "entropy", "an entropy bonus")).sum()
        return -self.coefficient * total, {"entropy_bonus": total.detach()}
