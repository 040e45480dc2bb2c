"""Numbers per token that colours stand for, over the rows of an archive: what was recorded, else what was noted.

The engine's entropies come first, the trainer's (`trainer_entropy`) where it reported none. A mismatch is between the
engine and the trainer where the trainer read the node, else between the engine's own two numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from rolltree.tree.node import TRAINER_ENTROPY, TRAINER_LOGP
from rolltree.tree.shape import Ints, offsets
from rolltree.tree.store.archive import Archive
from rolltree.tree.store.values import read_json
from rolltree.view.colours import Colouring

# Sums over runs of entries laid end to end, and per-action columns brought to the same rows.

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


_COMPUTE: Any = pc
"""Arrow's functions are generated at import, where no type checker sees them."""


def token_values(archive: Archive, colouring: Colouring, lo: int, hi: int) -> tuple[Floats, Ints]:
    """A number per action of the rows lo:hi end to end, NaN where there is none, and the rows' offsets."""
    if colouring == "entropy":
        (entropy,), at = aligned(archive, ("entropy",), lo, hi)
        missing = np.flatnonzero(np.diff(at) == 0)
        return _merged(entropy, at, noted(archive, TRAINER_ENTROPY, lo, hi, missing))
    if colouring == "mismatch":
        (sampled, logp), at = aligned(archive, ("sampling_logprob", "logp"), lo, hi)
        own, where = archive.ragged("logp")
        read = noted(archive, TRAINER_LOGP, lo, hi, np.arange(hi - lo))
        found = {
            row: own[where[lo + row] : where[lo + row + 1]] - values
            for row, values in read.items()
            if int(where[lo + row + 1] - where[lo + row]) == len(values)
        }
        return _merged(sampled - logp, at, found)
    if colouring == "advantage":
        (gain, loss, weight), at = aligned(archive, ("gain", "loss", "weight"), lo, hi)
        with np.errstate(invalid="ignore", divide="ignore"):
            return (gain + loss) / weight, at
    (version,), at = aligned(archive, ("version",), lo, hi)
    return newest(archive) - np.where(version < 0, np.nan, version), at


def node_means(archive: Archive, colouring: Colouring, lo: int, hi: int) -> Floats:
    """Mean of a quantity over each node's actions; an advantage's is over the weight of the leaves that gave it."""
    if colouring == "advantage":
        (gain, loss, weight), at = aligned(archive, ("gain", "loss", "weight"), lo, hi)
        with np.errstate(invalid="ignore", divide="ignore"):
            return segment_sum(gain + loss, at) / segment_sum(weight, at)
    return segment_mean(*token_values(archive, colouring, lo, hi))


def recorded(archive: Archive, colouring: Colouring, lo: int, hi: int) -> bool:
    """Whether any action of the rows has such a number."""
    if colouring in ("entropy", "mismatch"):
        names = ("entropy",) if colouring == "entropy" else ("sampling_logprob", "logp")
        if np.isfinite(np.sum(aligned(archive, names, lo, hi)[0], axis=0)).any():
            return True
        return bool(len(_with_note(archive, TRAINER_ENTROPY if colouring == "entropy" else TRAINER_LOGP, lo, hi)))
    return bool(np.isfinite(token_values(archive, colouring, lo, hi)[0]).any())


def noted(archive: Archive, name: str, lo: int, hi: int, rows: Ints) -> dict[int, Floats]:
    """A list of numbers out of the notes of some rows, counted from lo; rows without it are left out."""
    have = np.intersect1d(_with_note(archive, name, lo, hi), rows)
    texts = archive.column("notes").take(have + lo).to_pylist()
    return {row: _numbers(read_json(text).get(name)) for row, text in zip(have.tolist(), texts, strict=True)}


def _with_note(archive: Archive, name: str, lo: int, hi: int) -> Ints:
    """The rows, counted from lo, whose notes hold a name."""
    has = _COMPUTE.match_substring(archive.column("notes").slice(lo, hi - lo), f'"{name}"')
    return np.flatnonzero(has.fill_null(False).to_numpy())


def newest(archive: Archive) -> int:
    """The newest weight version that wrote anything in the forest."""
    versions, _ = archive.ragged("version")
    return int(versions.max()) if len(versions) else 0


def _numbers(given: object) -> Floats:
    if not isinstance(given, list):
        return np.zeros(0)
    values: Sequence[object] = given
    return np.array([float(v) if isinstance(v, int | float) else np.nan for v in values])


def _merged(flat: Floats, at: Ints, found: dict[int, Floats]) -> tuple[Floats, Ints]:
    """The numbers of all rows, those of some rows replaced."""
    if not found:
        return flat, at
    parts = [found[row] if row in found else flat[at[row] : at[row + 1]] for row in range(len(at) - 1)]
    return np.concatenate(parts), offsets([len(part) for part in parts])
