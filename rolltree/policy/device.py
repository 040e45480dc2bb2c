"""Where a policy computes, in which number type, and how much of its forward stands in memory at once."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from rolltree.errors import did_you_mean
from rolltree.policy.errors import ModelError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""Number types by the word on the command line."""
HALF = (torch.bfloat16, torch.float16)
"""Types too coarse for sums, softmax and small updates of a weight."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A device and the type of what is computed there. Trained weights are float32 whatever it is."""

    device: torch.device
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Compute:
    """How a policy is read for training."""

    dtype: torch.dtype | None = None
    """bfloat16: matrix products run in it over weights that stay as they are (autocast). None = as the weights are."""
    checkpointing: bool = False
    """Each layer's activations are computed again in the backward pass instead of kept."""
    piece: int = 0
    """Most tokens of a packed row that are computed at once, see `rolltree.policy.pieces`; 0 = all."""

    def context(self, device: torch.device) -> AbstractContextManager[Any]:
        """What the forward runs in."""
        return torch.autocast(device.type, self.dtype) if self.dtype in HALF else nullcontext()


def place(device: str = "auto", dtype: str = "auto") -> Placement:
    """What the words mean on this machine; a device that is not there is refused.

    `auto` is the accelerator where there is one, in bfloat16 where it computes in it, else the processor in float32.
    """
    where = _device(device)
    if dtype not in (*DTYPES, "auto"):
        way = did_you_mean(dtype, [*DTYPES, "auto"]) or f"choose auto, {' or '.join(DTYPES)}"
        raise ModelError(f"there is no dtype {dtype!r}: {way}")
    return Placement(where, natural(where) if dtype == "auto" else DTYPES[dtype])


def natural(device: torch.device) -> torch.dtype:
    """The type in which a device computes models: bfloat16 on accelerators that have it, float32 elsewhere."""
    if device.type == "cpu" or (device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False)):
        return torch.float32
    return torch.bfloat16 if device.type in ("cuda", "xpu") else torch.float32


def narrowed(model: Any, dtype: torch.dtype) -> Any:
    """The model with its parameters in another type; buffers stay, for coarse rotary frequencies move far positions."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.data = parameter.data.to(dtype)
    return model


def free_memory(device: torch.device) -> int:
    """Bytes that a program may still take there."""
    if device.type == "cpu":
        try:
            import psutil
        except ImportError:  # a card's driver needs it for nothing else
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return int(psutil.virtual_memory().available)
    accelerator: Any = torch.accelerator
    if hasattr(accelerator, "get_memory_info"):
        return int(accelerator.get_memory_info(device)[0])
    return int(torch.cuda.mem_get_info(device)[0])


def _device(name: str) -> torch.device:
    there = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if name == "auto":
        if there is None:
            return torch.device("cpu")
        return torch.device(there.type, torch.accelerator.current_device_index())
    try:
        asked = torch.device(name)
    except RuntimeError:
        raise ModelError(f"there is no device {name!r}: choose auto, cpu, cuda or cuda:N") from None
    if asked.type == "cpu":
        return torch.device("cpu")
    if there is None or there.type != asked.type:
        raise ModelError(
            f"--device {name}: torch {torch.__version__} finds no {asked.type} device on this machine; use --device "
            "cpu, or install the driver and a torch built for it"
        )
    count = torch.accelerator.device_count()
    named: Any = asked.index  # None where none is named, whatever the stubs say
    if named is not None and named >= count:
        raise ModelError(f"--device {name}: this machine has {count} (the last is {asked.type}:{count - 1})")
    return torch.device(asked.type, torch.accelerator.current_device_index() if named is None else named)
