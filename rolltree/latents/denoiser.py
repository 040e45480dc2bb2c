"""What a denoiser is: labels in and images out, the steps of its sampler, and what a module must have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rolltree.errors import RolltreeError
from rolltree.tree.node import Array, join_actions

# The channel of a denoiser: a class label goes in as one token, latents come out, the last of them is the image.
#
# An action is a step: the latent it led to, and behind it the noise it was drawn with (1 = the model's own, 0 = none).
# Whoever reads the action again, trainer or engine, so scores it under the distribution it really came from.


class ChannelError(RolltreeError, ValueError):
    """What a channel cannot encode: names it and what the channel knows."""


@dataclass(frozen=True, slots=True)
class LatentChannel:
    """Labels 0 … classes − 1 to prompts of one token, latents of `shape` to images."""

    shape: tuple[int, ...]
    classes: int
    kind: ClassVar[str] = "latents"

    @property
    def size(self) -> int:
        """Numbers in a latent."""
        return int(np.prod(self.shape))

    def encode(self, observation: Any, /) -> Array:
        """A label, as itself or written out; or latents given as actions, to be forced."""
        if isinstance(observation, np.ndarray) and observation.ndim:
            return self._given(observation)
        try:
            label = int(observation) if not isinstance(observation, float | bool) else -1
        except (TypeError, ValueError):
            label = -1
        if not 0 <= label < self.classes:
            raise ChannelError(
                f"{str(observation)[:80]!r} is no label of this model; give a number from 0 to {self.classes - 1}"
            )
        return np.array([label], np.int32)

    def decode(self, actions: Any, /) -> NDArray[np.float32]:
        """The image after the last step, or half-way to it: numbers about −1 … 1."""
        if not len(actions) or np.ndim(actions[-1]) == 0:
            raise ChannelError("nothing was denoised yet, so there is no image")
        return np.asarray(actions[-1], np.float32)[: self.size].reshape(self.shape)

    def split(self, actions: Array) -> tuple[int, NDArray[np.float32]]:
        """The label and the (n, size + 1) latents of a path from its prompt on."""
        prompt = [int(a) for a in actions if np.ndim(a) == 0]
        steps = [np.asarray(a, np.float32) for a in actions[len(prompt) :]]
        if len(prompt) != 1 or not 0 <= prompt[0] < self.classes or any(s.shape != (self.size + 1,) for s in steps):
            raise ChannelError(
                f"a path here is one label and then latents of {self.size + 1} numbers; this one has "
                f"{len(prompt)} tokens and {len(steps)} latents"
            )
        return prompt[0], np.array(steps, np.float32).reshape(len(steps), self.size + 1)

    def _given(self, actions: Array) -> Array:
        if actions.dtype.kind == "f" and actions.shape[1:] == (self.size + 1,):
            return actions.astype(np.float32)
        if actions.dtype.kind in "iu" and actions.ndim == 1:
            return actions.astype(np.int32)
        if actions.dtype.kind == "O":
            label, steps = self.split(actions)
            return join_actions([np.array([label], np.int32), steps])
        raise ChannelError(
            f"actions of {actions.dtype} and shape {actions.shape[1:]} are no latents of this model; give float32 of "
            f"shape ({self.size + 1},): the latent and the noise it was drawn with"
        )


# The steps of a flow model as a policy: where a step goes on average, and how far noise carries it.
#
# A flow model learns the velocity v of x_σ = (1 − σ)·x0 + σ·ε from noise (σ = 1) to data (σ = 0). A step from σ to σ′
# is
#
# mean = x + (σ′ − σ)·v − ½·g²·score·(σ′ − σ), std = g·√(σ − σ′), g = eta·noise
#
# with score = −(x − (1 − σ)·x̂0)/σ² and x̂0 = x − σ·v (BranchGRPO, arXiv 2509.06040; Flow-GRPO, arXiv 2505.05470). For
# any noise the images have the same distribution, up to the length of the steps; noise 0 is the ODE, a step without
# density. Released code of BranchGRPO adds four times the noise to the mean of noise 1; here the mean follows the
# noise.

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


# What a module must be for the engine of latents and the flow policy to work on it.


@runtime_checkable
class Denoiser(Protocol):
    """A velocity field of flat latents with the noise levels of its sampler; a `torch.nn.Module` that is one."""

    @property
    def sigmas(self) -> Sequence[float]:
        """Noise levels from 1 to 0, one more than steps."""
        ...

    @property
    def eta(self) -> float:
        """Noise of a step per √σ, at noise 1."""
        ...

    @property
    def width(self) -> int:
        """Numbers in a state."""
        ...

    @property
    def channel(self) -> LatentChannel:
        """Labels in, images out."""
        ...

    def hidden(self, x: Tensor, sigma: Tensor, label: Tensor) -> Tensor:
        """(B, width) what it knows of a latent: what a value is read off."""
        ...

    def __call__(self, x: Tensor, sigma: Tensor, label: Tensor) -> Tensor:
        """(B, size) velocities."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Its weights."""
        ...
