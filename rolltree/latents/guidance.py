"""Guidance: a hook that moves where a step goes on average, booked as a draw from another distribution (PGD)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Score = Callable[[Tensor], Tensor]
"""∇ log π of a latent under the policy (or reward) that guides: same shape as the latent."""


@dataclass(frozen=True, slots=True)
class Guidance:
    """Adds strength·λ_k·g to the mean of step k of n, g = score(mean), λ_k = (1 − k/n) + wave·sin(π(k + 1)/n).

    Policy-guided diffusion (arXiv 2404.06356) guides synthetic trajectories by the current policy's score; `normalise`
    divides g by its norm, as the released code does (there an ε outside the fraction leaves a zero gradient NaN; here
    it stays zero). With it every step moves by a fixed length, so the amount of guidance grows with the number of
    steps, and large strengths collapse the spread. The last step is not guided. What was drawn says so: its
    `sampling_logprob` is under the moved mean, its `logp` under the policy's own.
    """

    score: Score
    steps: int
    strength: float = 1.0
    wave: float = 0.3
    normalise: bool = True
    delay: int = 0
    """Steps before the first guided one."""

    def __call__(self, generated: Sequence[Any], logits: Any) -> Any:
        """See `rolltree.engine.protocol.LogitsHook`."""
        mean: Tensor = logits
        k = len(generated) - 1  # the first action is the draw from the prior
        if not self.delay <= k < self.steps - 1:
            return mean
        g = self.score(mean)
        norm = torch.linalg.vector_norm(g)
        if self.normalise:
            g = g / norm if float(norm) > 0 else torch.zeros_like(g)
        return mean + self.strength * self.weight(k) * g

    def weight(self, k: int) -> float:
        """λ_k."""
        return (1 - k / self.steps) + self.wave * math.sin(math.pi * (k + 1) / self.steps)
