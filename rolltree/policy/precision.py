"""Weights as coarse as a serving engine would keep them, computed in the type at hand: one function for both sides.

An engine that samples from coarse weights samples another policy than a trainer with fine ones trains. Jet-RL (arXiv
2601.14243) rounds in the training forward exactly as in the rollout: same format, same scales, gradients straight
through the rounding to fine master weights. Here the weights of linear layers are rounded, the output layer and the
embedding are not; the paper also rounds activations and gradients, which is not done here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rolltree.policy.errors import ModelError
from rolltree.policy.formats import Precision

BLOCK = 128
_FP8, _INT8 = 448.0, 127.0
"""Largest values of the formats."""


def rounded(weight: Tensor, precision: Precision) -> Tensor:
    """The values that a weight (out, in) has in this precision, in its own type. Scales are the largest magnitude."""
    if precision == "full":
        return weight
    if precision == "bf16":
        return weight.to(torch.bfloat16).to(weight.dtype)
    wide = weight if weight.dtype == torch.float64 else weight.float()
    if precision == "fp8-block":
        out, into = wide.shape
        padded = F.pad(wide, (0, -into % BLOCK, 0, -out % BLOCK))
        blocks = padded.unflatten(0, (-1, BLOCK)).unflatten(2, (-1, BLOCK)).transpose(1, 2)
        coarse = _scaled(blocks, (2, 3), _FP8)
        return coarse.transpose(1, 2).reshape(padded.shape)[:out, :into].to(weight.dtype)
    return _scaled(wide, (1,), _INT8 if precision == "int8" else _FP8).to(weight.dtype)


def _scaled(values: Tensor, over: tuple[int, ...], most: float) -> Tensor:
    scale = values.abs().amax(over, keepdim=True) / most
    scale = torch.where(scale > 0, scale, 1.0)
    unit = values / scale
    coarse = unit.round() if most == _INT8 else unit.to(torch.float8_e4m3fn).to(values.dtype)
    return coarse * scale


def linear_weights(model: Any) -> dict[str, nn.Linear]:
    """The layers that are rounded, by the names of their weights: all linear ones but the output layer."""
    head = model.get_output_embeddings()
    found = {
        f"{name}.weight": module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not head
    }
    if not found:
        raise ModelError(f"a {type(model).__name__} has no linear layers to round; leave the precision at full")
    return found


def rounded_state(state: Mapping[str, Tensor], names: frozenset[str], precision: Precision) -> Mapping[str, Tensor]:
    """A state dict with these weights rounded."""
    return {name: rounded(value, precision) if name in names else value for name, value in state.items()}


def round_forward(model: Any, precision: Precision) -> None:
    """Let the model compute with rounded weights from now on, while its parameters and their gradients stay fine."""
    for layer in linear_weights(model).values() if precision != "full" else ():
        layer.forward = partial(_linear, layer, precision)


def _linear(layer: nn.Linear, precision: Precision, input: Tensor) -> Tensor:
    weight: Any = _Straight.apply(layer.weight, precision)
    return F.linear(input, weight, layer.bias)


class _Straight(torch.autograd.Function):
    """Rounds on the way there, passes gradients on as they are."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, precision: Precision) -> Tensor:
        coarse = rounded(weight, precision)
        return coarse if coarse is not weight else weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None
