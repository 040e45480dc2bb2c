"""A denoiser with weights as a coarse type would hold them: a fake of quantisation, for cheap exploration."""

from __future__ import annotations

from copy import deepcopy

import torch

from rolltree.policy.errors import ModelError
from rolltree.policy.flow.net import FlowNet

BLOCK = 16
"""Weights that share one scale."""


@torch.no_grad()
def quantised(model: FlowNet, bits: int) -> FlowNet:
    """A copy whose matrices are rounded to signed integers of so many bits, with a scale for each block of 16.

    Nothing becomes faster: it answers what exploration in a coarse type would find (Sol-RL, arXiv 2604.06916, has FP4
    with scales of 16 elements).
    """
    if not 2 <= bits <= 16:
        raise ModelError(f"bits={bits} makes no sense; give 2 to 16")
    copy = deepcopy(model)
    most = 2 ** (bits - 1) - 1
    for parameter in copy.parameters():
        if parameter.ndim < 2:
            continue
        flat = parameter.reshape(-1)
        padded = torch.nn.functional.pad(flat, (0, -len(flat) % BLOCK)).reshape(-1, BLOCK)
        scale = padded.abs().amax(1, keepdim=True).clamp(min=1e-12) / most
        rounded = (padded / scale).round().clamp(-most, most) * scale
        parameter.copy_(rounded.reshape(-1)[: len(flat)].reshape(parameter.shape))
    return copy
