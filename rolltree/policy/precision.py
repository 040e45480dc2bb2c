"""Weights as coarse as a serving engine would keep them, computed in the type at hand: one function for both sides.

An engine that samples from coarse weights samples another policy than a trainer with fine ones trains. Jet-RL (arXiv
2601.14243) rounds in the training forward exactly as in the rollout: same format, same scales, gradients straight
through the rounding to fine master weights. Here the weights of linear layers are rounded, the output layer and the
embedding are not; of a copy that explores all matrices are. The paper also rounds activations and
gradients, which is not done here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, TypeVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rolltree.errors import ModelError
from rolltree.policy.formats import FORMATS, Format, Precision, Shared

Model = TypeVar("Model", bound=nn.Module)
TILE, RUN = 128, 16
"""Sides of a tile and length of a run of weights that share a scale."""


def rounded(weight: Tensor, precision: Precision | Format) -> Tensor:
    """The values that a weight has in this format, in its own type; scaled ones but runs of 16 take (out, in)."""
    form = precision if isinstance(precision, Format) else FORMATS[precision]
    if form is None:
        return weight
    if form.shared is None:
        return weight.to(torch.bfloat16).to(weight.dtype)
    wide = weight if weight.dtype == torch.float64 else weight.float()
    groups, back = _grouped(wide, form.shared)
    scale = groups.abs().amax(-1, keepdim=True) / form.most
    scale = torch.where(scale > 0, scale, 1.0)
    unit = groups / scale
    coarse = unit.round() if form.kind == "int" else unit.to(torch.float8_e4m3fn).to(unit.dtype)
    return back(coarse * scale).to(weight.dtype)


def _grouped(values: Tensor, shared: Shared) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The values with all that share a scale along the last axis, and the way back."""
    if shared == "channel":
        return values, lambda groups: groups
    if shared == "run":
        flat = values.reshape(-1)
        return F.pad(flat, (0, -len(flat) % RUN)).unflatten(0, (-1, RUN)), lambda groups: groups.reshape(-1)[
            : len(flat)
        ].reshape(values.shape)
    out, into = values.shape
    padded = F.pad(values, (0, -into % TILE, 0, -out % TILE))
    tiles = padded.unflatten(0, (-1, TILE)).unflatten(2, (-1, TILE)).transpose(1, 2)
    return tiles.flatten(
        2
    ), lambda groups: groups.unflatten(2, (TILE, TILE)).transpose(1, 2).reshape(padded.shape)[:out, :into]


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


def matrices(state: Mapping[str, Tensor]) -> frozenset[str]:
    """The weights that are rounded in a model of another family: all that have rows and columns."""
    return frozenset(name for name, value in state.items() if value.ndim >= 2 and value.is_floating_point())


@torch.no_grad()
def rounded_state(
    state: Mapping[str, Tensor], names: frozenset[str], precision: Precision | Format
) -> dict[str, Tensor]:
    """A state dict with these weights rounded."""
    return {name: rounded(value, precision) if name in names else value for name, value in state.items()}


def rounded_copy(model: Model, precision: Precision | Format) -> Model:
    """A copy of a model whose matrices are rounded, to explore with. Nothing becomes faster."""
    state = model.state_dict()
    copy = deepcopy(model)
    copy.load_state_dict(rounded_state(state, matrices(state), precision))
    return copy


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
