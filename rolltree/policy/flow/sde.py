"""The steps of a flow model as a policy: where a step goes on average, and how far noise carries it.

A flow model learns the velocity v of x_σ = (1 − σ)·x0 + σ·ε from noise (σ = 1) to data (σ = 0). A step from σ to σ′ is

    mean = x + (σ′ − σ)·v − ½·g²·score·(σ′ − σ),   std = g·√(σ − σ′),   g = eta·noise

with score = −(x − (1 − σ)·x̂0)/σ² and x̂0 = x − σ·v (BranchGRPO, arXiv 2509.06040; Flow-GRPO, arXiv 2505.05470). For any
noise the images have the same distribution, up to the length of the steps; noise 0 is the ODE, a step without density.
Released code of BranchGRPO adds four times the noise to the mean of noise 1; here the mean follows the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

LOG_2PI = math.log(2 * math.pi)


def sigmas_of(steps: int, shift: float) -> list[float]:
    """Noise levels from 1 to 0, moved towards noise: shift·t/(1 + (shift − 1)·t)."""
    return [shift * t / (1 + (shift - 1) * t) for t in ((steps - i) / steps for i in range(steps + 1))]


def step(
    x: Tensor, velocity: Tensor, index: Tensor, noise: Tensor, sigmas: Sequence[float], eta: float
) -> tuple[Tensor, Tensor]:
    """(B, D) means and (B,) deviations of steps `index` (0 = the first); the last step has no noise."""
    levels = torch.tensor(sigmas, dtype=x.dtype, device=x.device)
    here, there = levels[index], levels[index + 1]
    g = eta * torch.where(there > 0, noise, torch.zeros_like(noise))
    way = (there - here)[:, None]
    clean = x - here[:, None] * velocity
    score = -(x - (1 - here[:, None]) * clean) / here[:, None].square()
    mean = x + way * velocity - 0.5 * g[:, None].square() * score * way
    return mean, g * (here - there).sqrt()


def log_density(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """(B,) log-densities of isotropic Gaussians, summed over dimensions; NaN where there is no noise."""
    dim = x.shape[-1]
    drawn = std > 0
    unit = torch.where(drawn, std, torch.ones_like(std))
    found = -0.5 * ((x - mean) / unit[:, None]).square().sum(-1) - dim * (unit.log() + 0.5 * LOG_2PI)
    return torch.where(drawn, found, torch.full_like(found, torch.nan))


def entropy(std: Tensor, dim: int) -> Tensor:
    """(B,) entropies in nats; NaN where there is no noise."""
    return torch.where(std > 0, dim * (std.log() + 0.5 * (1 + LOG_2PI)), torch.full_like(std, torch.nan))
