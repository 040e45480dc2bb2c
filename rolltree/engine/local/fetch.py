"""What a decoding step brings from the device to the program, in one copy: each one waits for all that was computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

Numbers = np.ndarray[Any, np.dtype[Any]]


def fetch(*tensors: Tensor) -> list[Numbers]:
    """Tensors of one device as arrays; from an accelerator as float64, which holds ids and float32 exactly."""
    if all(t.device.type == "cpu" for t in tensors):
        return [t.numpy() for t in tensors]
    return together(*tensors)


def together(*tensors: Tensor) -> list[Numbers]:
    """The same through one row of numbers."""
    flat = torch.cat([t.reshape(-1).double() for t in tensors]).cpu().numpy()
    edges = np.cumsum([t.numel() for t in tensors])[:-1]
    return [part.reshape(t.shape) for part, t in zip(np.split(flat, edges), tensors, strict=True)]
