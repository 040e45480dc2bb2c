"""Sums over runs of entries laid end to end, and per-action columns brought to the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rolltree.tree.shape import Ints, offsets
from rolltree.tree.store.archive import Archive

Floats = NDArray[np.float64]


def segment_sum(values: NDArray[Any], at: Ints) -> Floats:
    """Sum of each run of entries; 0 where a run is empty."""
    out = np.zeros(len(at) - 1)
    full = np.diff(at) > 0
    if full.any():
        out[full] = np.add.reduceat(values, at[:-1][full], dtype=np.float64)
    return out


def segment_mean(values: NDArray[Any], at: Ints) -> Floats:
    """Mean of the finite entries of each run; NaN where there are none."""
    known = np.isfinite(values)
    count = segment_sum(known, at)
    with np.errstate(invalid="ignore", divide="ignore"):
        return segment_sum(np.where(known, values, 0.0), at) / count


def aligned(archive: Archive, names: Sequence[str], lo: int, hi: int) -> tuple[list[Floats], Ints]:
    """Per-action columns of rows lo:hi end to end, of those rows that have all of them, and the rows' offsets."""
    flats = [archive.ragged(name) for name in names]
    counts = [np.diff(at[lo : hi + 1]) for _, at in flats]
    have = np.min(counts, axis=0) if hi > lo else np.zeros(0, np.int64)
    keep = np.all([c == have for c in counts], axis=0) & (have > 0)
    out: list[Floats] = []
    for (values, at), count in zip(flats, counts, strict=True):
        part = values[at[lo] : at[hi]]
        out.append((part if keep.all() else part[np.repeat(keep, count)]).astype(np.float64))
    return out, offsets(np.where(keep, have, 0))
