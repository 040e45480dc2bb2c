"""Flow models of diffusers as policies: a class-conditional transformer with the noise levels of its scheduler.

    loaded = from_diffusers(DiTTransformer2DModel.from_pretrained(...), FlowMatchEulerDiscreteScheduler(shift=3.0))
    train("branch_grpo", loaded, task, out="runs/dit")

The scheduler says which levels there are; its deterministic step is the step of noise 0 here. Models that were trained
to predict noise are refused, because their velocity depends on another path between noise and data.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from rolltree.errors import RolltreeError
from rolltree.latents.denoiser import LatentChannel
from rolltree.policy.device import Compute
from rolltree.policy.load import LoadedModel

if TYPE_CHECKING:
    from rolltree.latents.engine import LatentEngine
    from rolltree.latents.policy import FlowPolicy

TIMES = 1000
"""Timesteps of diffusers between data and noise."""


class DiffusersError(RolltreeError, ValueError):
    """A model or scheduler that is no flow model; names what it is and the way out."""


class DiffusersDenoiser(nn.Module):
    """A transformer of diffusers as a `rolltree.latents.denoiser.Denoiser`."""

    def __init__(self, transformer: Any, scheduler: Any, *, steps: int = 10, eta: float = 0.7) -> None:
        super().__init__()
        kind = type(scheduler).__name__
        if not kind.startswith("FlowMatch"):
            raise DiffusersError(
                f"{kind} is no scheduler of a flow model; give a FlowMatchEulerDiscreteScheduler and a model that "
                "was trained to predict velocities"
            )
        config = transformer.config
        classes = getattr(config, "num_embeds_ada_norm", None)
        if not classes:
            raise DiffusersError(
                f"{type(transformer).__name__} is not conditioned on classes; give a class-conditional transformer"
            )
        self.transformer = transformer
        scheduler.set_timesteps(steps)
        self._sigmas = [float(s) for s in scheduler.sigmas]
        self._eta = eta
        self._shape = (int(config.in_channels), int(config.sample_size), int(config.sample_size))
        self._classes = int(classes)

    @property
    def sigmas(self) -> list[float]:
        """Those of the scheduler."""
        return self._sigmas

    @property
    def eta(self) -> float:
        """Noise of a step per √σ, at noise 1."""
        return self._eta

    @property
    def width(self) -> int:
        """Numbers in a state: a transformer of diffusers shows none."""
        return 0

    @property
    def channel(self) -> LatentChannel:
        """Labels in, latents of the model's own shape out."""
        return LatentChannel(self._shape, self._classes)

    def hidden(self, x: Tensor, sigma: Tensor, label: Tensor) -> Tensor:
        """Refused."""
        raise DiffusersError("a transformer of diffusers shows no states; choose a credit without a critic")

    def forward(self, x: Tensor, sigma: Tensor, label: Tensor) -> Tensor:
        """Velocities; channels beyond the latent's own (a learned variance) are left out."""
        out = self.transformer(
            hidden_states=x.reshape(-1, *self._shape), timestep=sigma * TIMES, class_labels=label
        ).sample
        return out[:, : self._shape[0]].reshape(len(x), -1)

    def policy(self, compute: Compute) -> FlowPolicy:
        """See `rolltree.policy.protocol.OwnPolicy`."""
        from rolltree.latents.policy import FlowPolicy

        return FlowPolicy(self, compute)

    def engine(self, version: int) -> LatentEngine:
        """See `rolltree.engine.protocol.OwnEngine`."""
        from rolltree.latents.engine import LatentEngine

        return LatentEngine(self, version)

    def save_pretrained(self, folder: Path | str) -> None:
        """The transformer's own folder."""
        self.transformer.save_pretrained(folder)


def from_diffusers(transformer: Any, scheduler: Any, *, steps: int = 10, eta: float = 0.7) -> LoadedModel:
    """A model for `rolltree.train`; whether images are decoded from the latents is the task's business."""
    model = DiffusersDenoiser(transformer, scheduler, steps=steps, eta=eta).eval()
    return LoadedModel(model, model.channel, Path("."), type(transformer).__name__)
