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
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar, get_args

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rolltree.errors import unknown
from rolltree.policy.errors import ModelError

# Number formats that weights may be rounded to, by name (`rolltree.policy.precision` does it).

Precision = Literal["full", "bf16", "int8", "int4", "fp8", "fp8-block"]
"""full: as they are. int8 and fp8 (e4m3) have a scale for each output channel, fp8-block for each 128 × 128, int4 for
each 16 neighbours."""
Shared = Literal["channel", "tile", "run"]
"""Which weights share a scale: an output channel, a tile of 128 × 128, or a run of 16 in the order they lie in."""


@dataclass(frozen=True, slots=True)
class Format:
    """A grid of numbers, and which weights share a scale on it. The scale is their largest magnitude."""

    kind: Literal["bf16", "int", "fp8"]
    bits: int
    shared: Shared | None = None
    """None = there is no scale."""

    @property
    def most(self) -> float:
        """The largest number of the grid, of a signed integer or of e4m3."""
        return 448.0 if self.kind == "fp8" else float(2 ** (self.bits - 1) - 1)


def integers(bits: int) -> Format:
    """Signed integers of so many bits with a scale for each run of 16, for a copy that explores (Sol-RL has FP4 with
    scales of 16)."""
    if not 2 <= bits <= 16:
        raise ModelError(f"bits={bits} makes no sense; give 2 to 16")
    return Format("int", bits, "run")


FORMATS: Mapping[Precision, Format | None] = {
    "full": None,
    "bf16": Format("bf16", 16),
    "int8": Format("int", 8, "channel"),
    "int4": integers(4),
    "fp8": Format("fp8", 8, "channel"),
    "fp8-block": Format("fp8", 8, "tile"),
}
"""What the names stand for."""


def check_precision(precision: str) -> None:
    """Refuse an unknown name."""
    if precision not in get_args(Precision):
        raise unknown("precision", precision, get_args(Precision))


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
