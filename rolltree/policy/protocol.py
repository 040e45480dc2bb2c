"""What is trained: a policy that reads packed actions, whatever they are.

The trainer knows log-probs, entropies and states of actions; that they are token ids of a causal LM
(`rolltree.policy.language`) or latents of a denoiser is the policy's own business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from rolltree.policy.device import Compute
from rolltree.policy.packed import Packed


@dataclass(frozen=True, slots=True)
class PolicyRead:
    """What a policy says about T targets."""

    logp: Tensor
    """(T,) log-prob of each: full softmax at temperature 1, or the density of a step at its own noise."""
    entropy: Tensor | None = None
    """(T,) entropy in nats of the distribution each was drawn from, with gradient."""
    logits: Tensor | None = None
    """(T, V), with gradient."""
    watched: Tensor | None = None
    """(T,) entropies for the log, without gradient."""


class Policy(Protocol):
    """A trained (or fixed) policy over a module."""

    model: Any
    """The module that holds the weights; checkpoints save it with `save_pretrained`."""
    compute: Compute
    device: torch.device

    @property
    def width(self) -> int:
        """Numbers in a state."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """What is trained."""
        ...

    def read(self, packed: Packed, *, entropy: bool = False, logits: bool = False, watch: bool = False) -> PolicyRead:
        """Log-probs (and entropies, logits) of the targets; gradients flow unless the caller turned them off."""
        ...

    def states(self, packed: Packed) -> Tensor:
        """(T, width) what the policy knows before each target: what a value is read off."""
        ...

    def weights(self) -> Mapping[str, Tensor]:
        """What an engine takes as new weights: live tensors, which it copies."""
        ...

    def state_dict(self) -> Mapping[str, Tensor]:
        """Its weights."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take weights."""
        ...


@runtime_checkable
class OwnPolicy(Protocol):
    """A module that says by which policy it is read; every other is a causal LM of transformers."""

    def policy(self, compute: Compute) -> Policy:
        """The policy that reads this module."""
        ...


def policy_of(model: Any, compute: Compute | None = None) -> Policy:
    """The policy over a module."""
    if isinstance(model, OwnPolicy):
        return model.policy(compute or Compute())
    from rolltree.policy.language import LanguagePolicy

    return LanguagePolicy(model, compute=compute)
