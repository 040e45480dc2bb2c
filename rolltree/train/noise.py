"""How much the gradients of an update's prompts differ: what a larger batch would average away.

Rollouts of one prompt are compared with one another and so are no independent samples; prompts are.
"""

from __future__ import annotations

import torch

from rolltree.policy.protocol import Policy


class GradientNoise:
    """Told after each prompt's backward pass; prompts without a gradient are counted and never seen."""

    def __init__(self, policy: Policy, prompts: int) -> None:
        self._parameters = [p for p in policy.parameters() if p.requires_grad]
        self._before = [torch.zeros_like(p) for p in self._parameters]
        self._prompts = prompts
        self._squares = 0.0

    def add(self) -> None:
        """What the gradients have grown by since the last call is one prompt's share of the update's gradient."""
        for p, before in zip(self._parameters, self._before, strict=True):
            if p.grad is not None:
                self._squares += float((p.grad - before).square().sum())
                before.copy_(p.grad)

    def numbers(self) -> dict[str, float]:
        """The variance of a prompt's gradient around their mean, summed over weights, and that over the mean's squared
        norm (the gradient noise scale, arXiv 1812.06162, eq. 2.9); nothing where there is no gradient, or one prompt.

        The update's gradient is the mean of the prompts' own, so a prompt's own is n times its share.
        """
        n, square = self._prompts, sum(float(b.square().sum()) for b in self._before)
        if n < 2 or square == 0:
            return {}
        variance = max((n * n * self._squares - n * square) / (n - 1), 0.0)
        return {"grad_variance": variance, "noise_scale": variance / square}
