"""A flow model as a trained policy: the density of every step of packed denoising trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rolltree.errors import ModelError
from rolltree.latents.denoiser import Denoiser, LatentChannel, log_density, step
from rolltree.latents.denoiser import entropy as gaussian_entropy
from rolltree.policy.device import Compute
from rolltree.policy.packed import Packed
from rolltree.policy.protocol import PolicyRead


class FlowPolicy:
    """Reads packed trees of labels and latents. A step depends on the latent before it alone, never on its siblings."""

    model: Any

    def __init__(self, model: Denoiser, compute: Compute | None = None) -> None:
        self.model, self.compute = model, compute or Compute()
        if self.compute.piece or self.compute.checkpointing:
            raise ModelError(
                "a flow model keeps little of a step, so it is read whole; leave out piece and gradient_checkpointing"
            )
        self.device = next(self.model.parameters()).device

    @property
    def width(self) -> int:
        """Numbers in a state."""
        return self.model.width

    def parameters(self) -> Iterator[nn.Parameter]:
        """What is trained."""
        return (p for p in self.model.parameters() if p.requires_grad)

    def read(self, packed: Packed, *, entropy: bool = False, logits: bool = False, watch: bool = False) -> PolicyRead:
        """Densities of the steps that the targets are, each at the noise it was drawn with.

        The first latent comes from a fixed prior; a step without noise has no density and is refused.
        """
        if logits:
            raise ModelError("a denoiser has no logits; choose an objective that needs only log-probs")
        rows = _Rows.of(packed, self.model.channel, self.device)
        with self.compute.context(self.device):
            mean, std = rows.step(self.model)
            logp = log_density(rows.target, mean.float(), std)
            spread = gaussian_entropy(std, rows.target.shape[-1])
        if bool(logp.isnan().any()):
            raise ModelError(
                "a step without noise stands among what is trained, and it has no density; mask such steps (`keep`), "
                "as the engine does"
            )
        return PolicyRead(logp, spread if entropy else None, None, spread.detach() if watch else None)

    def states(self, packed: Packed) -> Tensor:
        """(T, width) what the model knows before each step."""
        rows = _Rows.of(packed, self.model.channel, self.device)
        return self.model.hidden(rows.latent, rows.levels(self.model), rows.label)

    def weights(self) -> Mapping[str, Tensor]:
        """The live state dict."""
        return self.model.state_dict()

    def state_dict(self) -> Mapping[str, Tensor]:
        """Its weights."""
        return self.model.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take weights."""
        self.model.load_state_dict(state)


class _Rows:
    """The steps of a packed row: from which latent, to which, at which index, for which label, with which noise."""

    def __init__(self, latent: Tensor, target: Tensor, index: Tensor, label: Tensor, noise: Tensor) -> None:
        self.latent, self.target, self.index, self.label, self.noise = latent, target, index, label, noise

    @classmethod
    def of(cls, packed: Packed, channel: LatentChannel, device: torch.device) -> _Rows:
        size, count = channel.size, len(packed.read)
        before = packed.reads[packed.read]
        if len(packed.target) and np.ndim(packed.target[0]) == 0:
            raise ModelError("a denoiser reads latents, and these trees hold tokens; train the policy that wrote them")
        latent, target = np.zeros((count, size), np.float32), np.zeros((count, size + 1), np.float32)
        index, label = np.full(count, -1), np.zeros(count, np.int64)
        root = packed.root
        for i in range(count):
            row = int(before[i])
            label[i] = int(packed.actions[root[row]])
            target[i] = packed.target[i]
            if np.ndim(packed.actions[row]):
                latent[i] = packed.actions[row][:size]
                # The path is the label, the first latent, then one latent a step.
                index[i] = int(packed.position[row]) - 1
        to = (torch.from_numpy(a).to(device) for a in (latent, target, index, label))
        x, y, k, c = to
        return cls(x, y[:, :size], k, c, y[:, size])

    def levels(self, model: Denoiser) -> Tensor:
        """(T,) noise levels before the steps."""
        return torch.tensor(model.sigmas, device=self.latent.device)[self.index.clamp(min=0)]

    def step(self, model: Denoiser) -> tuple[Tensor, Tensor]:
        """Means and deviations; of the first latent those of the prior."""
        first = self.index < 0
        velocity = model(self.latent, self.levels(model), self.label)
        mean, std = step(self.latent, velocity, self.index.clamp(min=0), self.noise, model.sigmas, model.eta)
        # The prior's mean keeps a (zero) gradient, so that a batch of first latents has a way back.
        return torch.where(first[:, None], mean * 0.0, mean), torch.where(first, torch.ones_like(std), std)
