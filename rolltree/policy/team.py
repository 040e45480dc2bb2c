"""The processor's threads that torch computes with: one team at a time, and idle OpenMP threads are released."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

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
