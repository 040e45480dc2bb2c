"""What a module must be for the engine of latents and the flow policy to work on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from rolltree.policy.flow.channel import LatentChannel


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
