"""The paired objective of DiffusionNFT: pull good samples' velocities up, push bad ones' down, without any log-prob.

A narrow slice, for PersistWorld's post-training (arXiv 2603.25685, base objective from DiffusionNFT): it needs samples
and their grades alone, no chain and no densities, so it stands beside the objectives of packed actions and not among
them. The replay of a world model's own history around it is not here.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rolltree.objective.against import ObjectiveError


def grades(outcome: Tensor, largest: float = 5.0, eps: float = 1e-6) -> Tensor:
    """r = clip(A/A_max/2 + ½, 0, 1) of one group's outcomes, A = (outcome − mean)/(std + eps)."""
    if outcome.ndim != 1 or len(outcome) < 2:
        raise ObjectiveError(f"grades compare a group of two samples or more, and these are {tuple(outcome.shape)}")
    advantage = (outcome - outcome.mean()) / (outcome.std() + eps)
    return (advantage / largest / 2 + 0.5).clamp(0, 1)


def paired_field(
    x0: Tensor, grade: Tensor, sigma: Tensor, noise: Tensor, now: Tensor, old: Tensor, *,
    mix: float = 1.0, largest: float = 5.0, weighted: bool = True,
) -> Tensor:  # fmt: skip
    """L = A_max/b · mean[r·|x̂0(f₊) − x0|²/w₊ + (1 − r)·|x̂0(f₋) − x0|²/w₋].

    f₊ = b·f + (1 − b)·o and f₋ = (1 + b)·o − b·f mix the new velocity f (`now`) and the old one o with b = `mix`. Both
    are (B, D) velocities at x_σ = (1 − σ)·x0 + σ·noise, `grade` is r in [0, 1], w the mean absolute error without
    gradient (at least 1e-5; 1 unless `weighted`). With equal velocities and r = ½ the gradient is zero.
    """
    if not 0 < mix <= 1:
        raise ObjectiveError(f"paired_field: mix={mix} must be in (0, 1]")
    if float(grade.min()) < 0 or float(grade.max()) > 1:
        raise ObjectiveError("paired_field: grades lie in [0, 1]; map outcomes with `grades` first")
    at = (1 - sigma[:, None]) * x0 + sigma[:, None] * noise
    still = old.detach()
    parts: list[Tensor] = []
    for field, share in ((mix * now + (1 - mix) * still, grade), ((1 + mix) * still - mix * now, 1 - grade)):
        off = at - sigma[:, None] * field - x0
        weight = off.detach().abs().mean(-1).clamp(min=1e-5) if weighted else torch.ones_like(grade)
        parts.append(share * off.square().mean(-1) / weight)
    return largest / mix * (parts[0] + parts[1]).mean()
