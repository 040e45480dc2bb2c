"""What keeps a stale step small: effective sample size, a step scaled by it, and the minimum-variance baseline.

VCPO, "Stable Asynchrony: Variance-Controlled Off-Policy RL", arXiv 2602.17616. The weights and the step's factor need
one number per path; the baseline is known only when the last path of a group has been differentiated, which is what
`TwoAccumulators` is for. The objective that puts them together is `rolltree_papers.vcpo.objective`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, need, need_paths
from rolltree.objective.penalty import kl
from rolltree.objective.ratio import behaviour, path_sum, ratio
from rolltree.objective.window import share


def ess(weights: Tensor) -> Tensor:
    """(Σw)²/(n·Σw²): the share of n weighted samples that equally weighted ones would be worth; 1 without any."""
    square = weights.square().sum() * len(weights)
    return torch.where(square > 0, weights.sum().square() / torch.where(square > 0, square, 1), 1)


def step_scale(share: float, base: float = 1.0, power: float = 0.5) -> float:
    """min(1, (ess/base))^power: what to multiply a learning rate with (0.5 is the paper's, 1 its linear variant)."""
    if not 0 < base <= 1:
        raise ObjectiveError(f"the ESS that keeps the full step must lie in (0, 1], not {base}")
    return min(1.0, share / base) ** power


@contextmanager
def scaled_step(optimizer: torch.optim.Optimizer, factor: float) -> Generator[None]:
    """Multiply every group's learning rate for one step and put it back.

    Decoupled weight decay (AdamW) is multiplied by the learning rate too, so it shrinks with it.
    """
    before = [group["lr"] for group in optimizer.param_groups]
    for group, lr in zip(optimizer.param_groups, before, strict=True):
        group["lr"] = lr * factor
    try:
        yield
    finally:
        for group, lr in zip(optimizer.param_groups, before, strict=True):
            group["lr"] = lr


def sequence_weights(batch: Batch, who: str = "a sequence weight") -> Tensor:
    """(L,) exp Σ_t log π/π_sampled per path over the actions that have a sampling probability; detached."""
    paths = need_paths(batch, who)
    centre, known = behaviour(batch.old, need(batch.sampled, "sampled", who))
    delta = torch.where(known, batch.logp.detach() - centre, 0)
    return ratio(path_sum(delta[paths.index], paths))


def minimum_variance_baseline(rewards: Tensor, norms: Tensor, weights: Tensor, *, as_released: bool = False) -> Tensor:
    """b* = Σ w²‖g‖²R / Σ w²‖g‖² for per-path score gradients g and importance weights w (VCPO's OPOB).

    It minimises the trace of the variance of w·(R − b)·g. `as_released` counts w twice, as the public code does: its
    gradients already carry the weight when their norm is multiplied by it again.
    """
    power = 4 if as_released else 2
    mass = weights.pow(power) * norms.square()
    total = mass.sum()
    return torch.where(total > 0, (mass * rewards).sum() / torch.where(total > 0, total, 1), 0)


@dataclass(slots=True)
class TwoAccumulators:
    """Σ w·R·g and Σ w·g over the paths of a group, so that Σ w·(R − b)·g is at hand once b is known.

    Add the gradient of one path's Σ log π at a time (a micro-batch of one), then take the `result`. Memory is two
    gradients, whatever the group's size.
    """

    with_reward: list[Tensor] = field(default_factory=list[Tensor])
    plain: list[Tensor] = field(default_factory=list[Tensor])
    rewards: list[float] = field(default_factory=list[float])
    norms: list[float] = field(default_factory=list[float])
    weights: list[float] = field(default_factory=list[float])

    def add(self, gradient: Sequence[Tensor], reward: float, weight: float = 1.0) -> None:
        """One path: ∇Σ log π as a tensor per parameter, its reward and its importance weight."""
        if not self.plain:
            self.with_reward = [torch.zeros_like(g) for g in gradient]
            self.plain = [torch.zeros_like(g) for g in gradient]
        if len(gradient) != len(self.plain):
            raise ObjectiveError(
                f"a path's gradient has {len(gradient)} tensors, the paths before had {len(self.plain)}"
            )
        for with_reward, plain, g in zip(self.with_reward, self.plain, gradient, strict=True):
            with_reward.add_(g, alpha=weight * reward)
            plain.add_(g, alpha=weight)
        self.rewards.append(reward)
        self.weights.append(weight)
        self.norms.append(float(sum(g.double().square().sum() for g in gradient)) ** 0.5)

    @property
    def baseline(self) -> float:
        """The minimum-variance baseline of the paths added so far."""
        columns = (torch.tensor(c, dtype=torch.float64) for c in (self.rewards, self.norms, self.weights))
        return float(minimum_variance_baseline(*columns))

    def summed(self, baseline: float | None = None) -> list[Tensor]:
        """Σ w·(R − b)·g per parameter: the direction in which the reward grows; b defaults to `baseline`."""
        b = self.baseline if baseline is None else baseline
        return [a - b * g for a, g in zip(self.with_reward, self.plain, strict=True)]

    def result(self, baseline: float | None = None) -> list[Tensor]:
        """The mean over the paths instead of the sum."""
        return [g / max(len(self.rewards), 1) for g in self.summed(baseline)]


# How far the sampling distribution is from the policy that is trained: numbers for every step, whatever the objective.


def mismatch(batch: Batch, threshold: float = 0.1) -> dict[str, Tensor]:
    """Difference between log π_old and log π_sampled over the actions that have a sampling probability.

    `mismatch`, `mismatch_max`: of its absolute value. `mismatch_over`: weight of the actions where it exceeds
    the threshold.
    `sampling_k3`: estimate of KL(π_sampled‖π_old). `unsampled`: weight of the actions without a sampling probability.
    `ess`: effective share of the paths under their whole importance weights, or of the actions when there are no paths.
    """
    base, known = behaviour(batch.old, need(batch.sampled, "sampled", "a mismatch report"))
    log_w = (batch.old - base).detach()
    weight = batch.weight * known
    apart = log_w.abs()
    total = log_w[known] if batch.paths is None else path_sum(log_w[batch.paths.index], batch.paths)
    return {
        "mismatch": share(weight, apart),
        "mismatch_max": apart.max() if len(apart) else apart.sum(),
        "mismatch_over": share(weight, apart > threshold),
        "sampling_k3": share(weight, kl(-log_w, "k3")),
        "unsampled": share(batch.weight, ~known),
        "ess": ess(ratio(total)),
    }
