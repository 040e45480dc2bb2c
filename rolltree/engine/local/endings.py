"""Which rows end with the token just written to them, and why."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from rolltree.engine.local.batch import DecodeBatch, Ints
from rolltree.engine.local.stops import EOS, STOP, StopTables
from rolltree.engine.protocol import EngineError
from rolltree.tree.node import Finish

Ending: TypeAlias = tuple[int, Finish | EngineError, str]
"""A row, why it ends, and the stop string that fired."""


def endings_of(b: DecodeBatch, stops: StopTables, failures: dict[int, EngineError], rows: Ints) -> list[Ending]:
    """Of these rows of a batch those that end, the ones that failed before all others."""
    bits = b.meaning[rows, b.ids[rows, b.length[rows] - 1]]
    out: list[Ending] = [(row, error, "") for row, error in failures.items()]
    maybe = np.flatnonzero((bits > 0) | (b.length[rows] >= b.limit[rows]))
    for row, bit in zip(rows[maybe].tolist(), bits[maybe].tolist(), strict=True):
        stop = b.runs[row].request.sampling.stop
        if row in failures:
            continue
        if bit & EOS:
            out.append((row, "eos", ""))
        elif bit & STOP:
            out.append((row, "stop", ""))
        elif bit and (fired := _fired(b, stops, row, stop)):
            out.append((row, "stop" if isinstance(fired, str) else fired, str(fired)))
        elif b.length[row] >= b.limit[row]:
            out.append((row, "length", ""))
    return out


def blamed(what: str, error: BaseException) -> EngineError:
    """An error as what ends a run, with its cause."""
    failure = EngineError(f"{what} with {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _fired(b: DecodeBatch, stops: StopTables, row: int, stop: tuple[str, ...]) -> str | EngineError:
    """The stop string that ends a row, or what the codec failed with."""
    try:
        return stops.fired(b.ids[row, b.begin[row] : b.length[row]], stop)
    except Exception as error:  # its token is drawn, so it can neither go on nor be drawn again
        return blamed("The codec failed on the text of a sample", error)
