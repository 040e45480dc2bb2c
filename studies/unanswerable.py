"""When a row of a table or a claim of a confirmation could not have been answered: *void* there, and no verdict."""

from __future__ import annotations

from collections.abc import Sequence

from rolltree.compare.void import CEILING, rested


def lost(fallen: int, ends: Sequence[float]) -> str:
    """Why nothing could be ahead of these runs of a baseline in a way that counts; empty where it could."""
    if 2 * fallen > len(ends):
        return "the baseline collapsed"
    return "the baseline stands at its ceiling" if ends and sum(ends) / len(ends) >= CEILING else ""


def idle(counted: Sequence[float], rest: float) -> bool:
    """Whether a counter, one number a run, says that the mechanism never acted."""
    return rested([value == rest for value in counted])
