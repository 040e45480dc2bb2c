"""Whether weights are those of a model: what is missing is never made up, and nothing is read that cannot fit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoModelForCausalLM

from rolltree.errors import ModelError
from rolltree.policy.hub import trusts_code

_LAYER = re.compile(r"(?:^|\.)(?:layers|layer|h|blocks|block)\.(\d+)\.")
_MORE = 8
"""How many times as many numbers as its files hold a model may have: tied tensors are written once."""


def tensors_of(file: Path) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a safetensors file, of which only the head is read."""
    try:
        with safe_open(str(file), framework="pt") as reader:  # pyright: ignore[reportUnknownVariableType]
            return {str(k): tuple(reader.get_slice(k).get_shape()) for k in reader.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{file} is corrupt or half-written ({error}); get or save the model again.") from error


def check_sizes(path: Path, config: Any) -> None:
    """Refuse a folder whose config describes another model than its weights, before memory is taken for it."""
    held: dict[str, tuple[int, ...]] = {}
    for file in sorted(path.glob("*.safetensors")):
        held |= tensors_of(file)
    if not held:
        return  # an older format, which only its own reader can look into
    numbers = {int(found.group(1)) for name in held if (found := _LAYER.search(name))}
    layers = getattr(config, "num_hidden_layers", None)
    if numbers and isinstance(layers, int) and layers > max(numbers) + 1:
        raise ModelError(
            f"The config in {path} names {layers} layers and its weights have {max(numbers) + 1}; get or save the "
            "model again."
        )
    with torch.device("meta"):
        made: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=trusts_code())
        described: int = sum(p.numel() for p in made.parameters())
    written = sum(torch.Size(shape).numel() for shape in held.values())
    if described > _MORE * written:
        raise ModelError(
            f"The config in {path} describes a model of {described:,} numbers and its weights hold {written:,}; get or "
            "save the model again."
        )


def refuse_missing(path: Path, missing: Iterable[str]) -> None:
    """Refuse weights that lack tensors: they would be drawn at random."""
    names = sorted(missing)
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise ModelError(
            f"The weights in {path} lack {', '.join(map(repr, names[:3]))}{more}; get or save the model again."
        )


def refuse_layers_left_out(path: Path, unknown: Iterable[str]) -> None:
    """Refuse weights with whole layers that the model does not have: it would be another, shorter one."""
    layers = sorted(name for name in unknown if _LAYER.search(name))
    if layers:
        raise ModelError(
            f"The weights in {path} hold {layers[0]!r}, which a model of that config does not have; get or save the "
            "model again."
        )


def load_weights(model: torch.nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    """Copy the weights of a folder into a model, all or nothing: none may be missing, unknown or of another shape.

    A tensor that shares its memory with another one is written once.
    """
    own = model.state_dict()
    there = {tensor.data_ptr() for name, tensor in own.items() if name in state}
    refuse_missing(path, [name for name, tensor in own.items() if name not in state and tensor.data_ptr() not in there])
    unknown = sorted(state.keys() - own.keys())
    if unknown:
        raise ModelError(f"The weights in {path} hold {unknown[0]!r}, which the model does not have.")
    for name, tensor in state.items():
        if tensor.shape != own[name].shape:
            found, wanted = tuple(tensor.shape), tuple(own[name].shape)
            raise ModelError(f"Weight {name!r} in {path} has shape {found}, but the model has {wanted}.")
    with torch.no_grad():
        for name, tensor in state.items():
            own[name].copy_(tensor)
