"""Kept prefixes as they go from one engine to another: their blocks once each, as bytes, with the texts they belong to.

Keys and values mean something only under the weights that made them, so what travels says what those were, and an
engine takes nothing that its own do not equal: version, shapes, number type, and a fingerprint of the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rolltree.engine.local.prefix import BLOCK, Ids, KeptRun, PrefixCache
from rolltree.engine.local.worker import Worker
from rolltree.engine.prefixes import Offered, Taken
from rolltree.engine.protocol import EngineError
from rolltree.policy.decoder import Decoder
from rolltree.policy.slab import LayerShape, Slab
from rolltree.tree.node import Array

Bytes: TypeAlias = NDArray[np.uint8]

_WHOLE = 1 << 16
"""Numbers of a weight up to which its fingerprint reads all of them."""
_PICKED = 1 << 12
"""Numbers that it reads of a larger one, evenly spaced."""
_PIECE = 8
"""Blocks of a row in which runs are put into the radix tree."""
_ROWS = 64
"""Rows put there at once; the engine may decode between two of these."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Under what keys and values were made."""

    version: int
    weights: str
    """Their fingerprint."""
    shapes: tuple[LayerShape, ...]
    dtype: str
    block: int = BLOCK

    def differs(self, other: Origin) -> str:
        """The first thing in which two differ; empty where they are the same."""
        return next((f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name)), "")


@dataclass(frozen=True, slots=True)
class Run:
    """Tokens of blocks one below the other, behind the first `start` tokens of an earlier run's text."""

    parent: int
    """-1 = the beginning."""
    start: int
    tokens: Ids
    planned: bool

    @property
    def blocks(self) -> int:
        """How many they are; the last may be short."""
        return -(-len(self.tokens) // BLOCK)


@dataclass(frozen=True, slots=True)
class PrefixBlocks:
    """Kept prefixes on their way: runs, parents first, and their blocks in the same order."""

    origin: Origin
    runs: tuple[Run, ...]
    layers: tuple[tuple[Bytes, Bytes], ...]
    """Keys and values of each layer, (blocks, heads, BLOCK, bytes of a vector)."""

    @property
    def offered(self) -> Offered:
        """What it is, without its bytes."""
        parents = {(run.parent, run.start) for run in self.runs}
        ends = {(i, _end(run)) for i, run in enumerate(self.runs)}
        return Offered(
            len(ends - parents), sum(len(run.tokens) for run in self.runs),
            sum(part.nbytes for layer in self.layers for part in layer),
        )  # fmt: skip

    def damage(self) -> bool:
        """Whether its parts do not belong together."""
        ends = [-1, *(_end(run) for run in self.runs)]
        if any(not -1 <= run.parent < i or run.start > max(ends[run.parent + 1], 0) for i, run in enumerate(self.runs)):
            return True
        if any(run.start % BLOCK or not len(run.tokens) for run in self.runs):
            return True
        blocks, itemsize = sum(run.blocks for run in self.runs), getattr(torch, self.origin.dtype).itemsize
        wanted = [
            (blocks, s.heads, BLOCK, dim * itemsize) for s in self.origin.shapes for dim in (s.key_dim, s.value_dim)
        ]
        return [part.shape for layer in self.layers for part in layer] != wanted


def _end(run: Run) -> int:
    return run.start + len(run.tokens)


def fingerprint(state: Mapping[str, Tensor]) -> str:
    """What tells weights apart: of every one its name, type, shape and numbers (of large ones some)."""
    out = blake2b(digest_size=16)
    for name in sorted(state):
        tensor = state[name].detach()
        flat = tensor.reshape(-1)
        if len(flat) > _WHOLE:
            flat = flat[torch.linspace(0, len(flat) - 1, _PICKED, dtype=torch.float64).long().to(flat.device)]
        out.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        out.update(flat.contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return out.hexdigest()


def origin_of(decoder: Decoder, version: int, weights: str) -> Origin:
    """What an engine's keys and values are made under now."""
    return Origin(version, weights, tuple(decoder.shapes), str(decoder.dtype).removeprefix("torch."))


def export(cache: PrefixCache, decoder: Decoder, origin: Origin, texts: Sequence[Ids], *, below: bool) -> PrefixBlocks:
    """Copies of the blocks that are kept of texts, as many as the cache holds."""
    kept = cache.runs(texts, below=below, most=cache.size)
    slots = [slot for run in kept for slot in run.slots]
    slab = Slab.zeros(tuple(decoder.shapes), len(slots), BLOCK, decoder.dtype, decoder.device)
    for at in range(0, len(slots), _ROWS):
        cache.restore([[slot] for slot in slots[at : at + _ROWS]], slab, at)
    return PrefixBlocks(
        origin, tuple(_as_runs(kept)), tuple((_bytes(keys), _bytes(values)) for keys, values in slab.layers)
    )


def _as_runs(kept: Sequence[KeptRun]) -> list[Run]:
    """Each below the earlier one whose text it goes on from."""
    found: dict[bytes, int] = {b"": -1}
    out = list[Run]()
    for i, run in enumerate(kept):
        out.append(Run(found[run.text[: run.start].tobytes()], run.start, run.text[run.start :], run.planned))
        for end in range(run.start + BLOCK, len(run.text) + 1, BLOCK):
            found.setdefault(run.text[:end].tobytes(), i)
    return out


def _bytes(part: Tensor) -> Bytes:
    return part[:, :, :BLOCK].contiguous().cpu().view(torch.uint8).numpy()


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a run that goes into the radix tree as one row: its text, where the part begins, its blocks."""

    text: Ids
    start: int
    first: int
    blocks: int
    planned: bool


def refusal(blocks: PrefixBlocks, here: Origin, cache: PrefixCache) -> str:
    """Why an engine does not take what came; empty = it does."""
    if differs := blocks.origin.differs(here):
        return differs
    if blocks.damage():
        return "damaged"
    return "" if cache.size else "room"


def pieces(blocks: PrefixBlocks, most: int) -> list[list[Piece]]:
    """Rows to put into the radix tree, parents first, some at a time; at most `most` blocks."""
    texts, rows, first = list[Ids](), list[Piece](), 0
    for run in blocks.runs:
        above = texts[run.parent][: run.start] if run.parent >= 0 else run.tokens[:0]
        text = np.concatenate([above, run.tokens])
        texts.append(text)
        count = max(min(run.blocks, most - first), 0)
        cuts = [*range(0, count, _PIECE), count]
        rows += [
            Piece(text[: run.start + b * BLOCK], run.start + a * BLOCK, first + a, b - a, run.planned)
            for a, b in pairwise(cuts)
        ]
        first += run.blocks
    return [rows[at : at + _ROWS] for at in range(0, len(rows), _ROWS)]


def put(cache: PrefixCache, decoder: Decoder, blocks: PrefixBlocks, rows: Sequence[Piece]) -> int:
    """Put rows into the radix tree; how many of their tokens it did not have."""
    had, widest = cache.counts.handed, max(row.blocks for row in rows)
    slab = Slab.zeros(tuple(decoder.shapes), len(rows), widest * BLOCK, decoder.dtype, decoder.device)
    for layer, parts in zip(slab.layers, blocks.layers, strict=True):
        for target, source in zip(layer, parts, strict=True):
            for i, row in enumerate(rows):
                read = _numbers(source[row.first : row.first + row.blocks], decoder.dtype).to(decoder.device)
                target[i, :, : row.blocks * BLOCK] = read.permute(1, 0, 2, 3).flatten(1, 2)
    planned = {i for i, row in enumerate(rows) if row.planned}
    try:
        cache.store([(i, row.start, row.text) for i, row in enumerate(rows)], slab, planned, handed=True)
    except Exception:  # what is not kept is computed again
        cache.clear()
        raise
    return cache.counts.handed - had


def _numbers(part: Bytes, dtype: torch.dtype) -> Tensor:
    # What came through shared memory may not be written to, and torch takes no such array.
    return torch.from_numpy(part.copy()).view(dtype)


async def exported(
    worker: Worker, weights: Callable[[], str], texts: Sequence[Array], *, below: bool
) -> tuple[Offered, PrefixBlocks | None]:
    """What an engine keeps of texts, read between two of its steps."""
    out = list[PrefixBlocks]()

    def work() -> None:
        core = worker.core
        origin = origin_of(core.decoder, core.version, weights())
        ids = [np.asarray(text, np.int64) for text in texts]
        out.append(export(core.kept, core.decoder, origin, ids, below=below))

    await _asked(worker, work)
    return (out[0].offered, out[0]) if out[0].runs else (Offered(), None)


async def imported(worker: Worker, weights: Callable[[], str], blocks: PrefixBlocks) -> Taken:
    """Have an engine keep what another has read; it may decode between two parts of it."""
    refused, tokens = "", 0

    def work(rows: Sequence[Piece]) -> None:
        nonlocal refused, tokens
        core = worker.core
        here = origin_of(core.decoder, core.version, weights())
        refused = blocks.origin.differs(here) if rows else refusal(blocks, here, core.kept)
        if rows and not refused:
            tokens += put(core.kept, core.decoder, blocks, rows)

    await _asked(worker, lambda: work(()))
    if not refused:
        for rows in pieces(blocks, worker.core.kept.size):
            await _asked(worker, lambda rows=rows: work(rows))
            if refused:
                break
    return Taken(tokens, refused)


async def _asked(worker: Worker, work: Callable[[], None]) -> None:
    if worker.closed:
        raise EngineError("The engine is closed; make a new one.")
    await worker.ask(work)
