"""Weights of a few bits, for a copy that explores: a fake of quantisation for any module.

The formats of serving engines, which a language model is trained in, are in `rolltree.policy.precision`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TypeVar

import torch
from torch import Tensor, nn

from rolltree.policy.errors import ModelError

Model = TypeVar("Model", bound=nn.Module)
BLOCK = 16
"""Weights that share one scale."""


@torch.no_grad()
def coarse_weights(weights: Mapping[str, Tensor], bits: int) -> dict[str, Tensor]:
    """Weights whose matrices are rounded to signed integers of so many bits, with a scale for each block of 16.

    Nothing becomes faster: it answers what exploration in a coarse type would find (Sol-RL, arXiv 2604.06916, has FP4
    with scales of 16 elements).
    """
    check_bits(bits)
    most = 2 ** (bits - 1) - 1
    out: dict[str, Tensor] = {}
    for name, weight in weights.items():
        out[name] = weight
        if weight.ndim < 2 or not weight.is_floating_point():
            continue
        flat = weight.reshape(-1)
        padded = nn.functional.pad(flat, (0, -len(flat) % BLOCK)).reshape(-1, BLOCK)
        scale = padded.abs().amax(1, keepdim=True).clamp(min=1e-12) / most
        coarse = (padded / scale).round().clamp(-most, most) * scale
        out[name] = coarse.reshape(-1)[: len(flat)].reshape(weight.shape)
    return out


def quantised(model: Model, bits: int) -> Model:
    """A copy of a model with coarse weights."""
    weights = coarse_weights(model.state_dict(), bits)
    copy = deepcopy(model)
    copy.load_state_dict(weights)
    return copy


def check_bits(bits: int) -> None:
    """Refuse numbers of bits that make no sense."""
    if not 2 <= bits <= 16:
        raise ModelError(f"bits={bits} makes no sense; give 2 to 16")
