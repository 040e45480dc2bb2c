"""Out of memory: how it is told from other failures, and how much smaller an engine becomes then."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

_SIGNS = ("allocate memory", "out of memory", "bad_alloc", "bad allocation")
_LEAST = 64
"""Tokens that are read at once when there is next to no memory."""


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Sizes of one engine."""

    max_batch: int
    budget: int
    """Tokens of keys and values for requests inside."""
    cache: int
    """Tokens of keys and values for prefixes kept."""
    max_context: int
    max_top: int
    prefill: int = 8192
    """Prefix tokens read in one step, about."""
    chunk: int = 4096
    """Padded tokens in one forward of a prefill or score."""
    commons: int = 0
    """Tokens of keys and values for what requests inside share."""


def is_shortage(error: BaseException) -> bool:
    """Whether memory was wanting; torch says so in words only where there is no accelerator."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


def smaller(limits: AdmissionLimits, inside: int) -> AdmissionLimits | None:
    """Limits under which `inside` requests at once need about half; None where nothing is left to give up."""
    if inside > 1:
        halves = {"cache": limits.cache // 2, "commons": limits.commons // 2, **_reading(limits)}
        return replace(limits, max_batch=max(1, inside // 2), **halves)
    if limits.cache or limits.chunk > _LEAST:
        return replace(limits, max_batch=1, cache=0, commons=0, chunk=_LEAST, prefill=_LEAST)
    return None


def reads_less(limits: AdmissionLimits) -> AdmissionLimits | None:
    """Limits under which half as much is read at once; None where it is little already."""
    return replace(limits, **_reading(limits)) if limits.chunk > _LEAST else None


def _reading(limits: AdmissionLimits) -> dict[str, int]:
    return {"chunk": max(_LEAST, limits.chunk // 2), "prefill": max(_LEAST, limits.prefill // 2)}
