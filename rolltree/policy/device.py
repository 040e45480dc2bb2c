"""Where a policy computes: device, number type and threads, and how much of its forward stands in memory at once."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from rolltree.errors import ModelError, did_you_mean

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


_SOFT = 1
"""OpenMP's `omp_pause_soft`: threads end, settings stay."""


def release_team() -> None:
    """End the threads that torch's operations ran on in this thread; its next operation takes new ones (0.2 ms).

    Every thread that computes has a team of its own, as large as the machine. As soon as two of them exist, GNU's
    OpenMP counts more threads than processors and lets all of them sleep at every barrier instead of waiting awake
    for a while, and small operations take twice as long and more, even where only one team has work. So who has
    computed and hands over gives its team back. Where torch does not run on GNU's OpenMP nothing is done.
    """
    for pause in _pauses():
        pause(_SOFT)


@cache
def _pauses() -> tuple[Callable[[int], int], ...]:
    """`omp_pause_resource_all` of every GNU OpenMP in this process: torch brings one, other packages may."""
    if not torch.backends.openmp.is_available():
        return ()
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return ()
    paths = {line.split(maxsplit=5)[-1] for line in lines if "/libgomp" in line}
    found = [getattr(ctypes.CDLL(path), "omp_pause_resource_all", None) for path in sorted(paths)]
    return tuple(pause for pause in found if pause is not None)
