"""Who gets in: first tree come, first served, as long as the whole reservation of everybody inside fits the memory.

A row reserves room for its longest possible length, and all rows are equally wide, so what counts is rows × width. An
admitted request can therefore always finish; what does not fit waits.
"""

from __future__ import annotations

import difflib
import math
import numbers
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from rolltree.engine.local.prefix import Ids
from rolltree.engine.local.run import LocalRun
from rolltree.engine.protocol import EngineError, Request, Sampling
from rolltree.tree.node import Array

# Out of memory: how it is told from other failures, and how much smaller an engine becomes then.

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


# Refuses what can never work, in one sentence, before any work is done.

WANTS = ("entropy", "top", "hidden")


def check_tokens(tokens: Array, vocab: int, what: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The ids as int64, or an EngineError naming the first that is not one."""
    ids = np.asarray(tokens)
    if ids.ndim != 1 or not (np.issubdtype(ids.dtype, np.integer) or ids.size == 0):
        raise EngineError(f"The {what} must be a 1-d array of integer token ids, not {ids.dtype} of shape {ids.shape}.")
    bad = np.flatnonzero((ids < 0) | (ids >= vocab))
    if bad.size:
        raise EngineError(
            f"Token {ids[bad[0]]} at position {bad[0]} of the {what} is outside the vocabulary of {vocab}."
        )
    return ids.astype(np.int64)


def check_sampling(s: Sampling, vocab: int) -> None:
    """Every knob of its kind and in its range."""
    _check_kinds(s)
    if s.max_tokens < 0:
        raise EngineError(f"max_tokens is {s.max_tokens}; it must be 0 or more.")
    if not (math.isfinite(s.temperature) and s.temperature >= 0):
        raise EngineError(f"temperature is {s.temperature}; it must be a finite number, 0 (greedy) or more.")
    if not 0 < s.top_p <= 1:
        raise EngineError(f"top_p is {s.top_p}; it must be above 0 and at most 1 (1 = no limit).")
    if s.top_k < 0:
        raise EngineError(f"top_k is {s.top_k}; it must be 0 (no limit) or more.")
    if s.offset < 0:
        raise EngineError(f"offset is {s.offset}; it must be 0 or more.")
    if "" in s.stop:
        raise EngineError("A stop string is empty and would end every sample at once; drop it.")
    for i in s.stop_ids:
        if not 0 <= i < vocab:
            raise EngineError(f"Stop id {i} is outside the vocabulary of {vocab}.")


def _check_kinds(s: Sampling) -> None:
    """Types too: a stop that is no string would otherwise fail in the middle of a step of all requests."""
    counts: dict[str, Any] = {"max_tokens": s.max_tokens, "top_k": s.top_k, "offset": s.offset, "seed": s.seed}
    for name, value in counts.items():
        if not isinstance(value, numbers.Integral) and not (name == "seed" and value is None):
            raise EngineError(f"{name} is {value!r}; it must be a whole number.")
    reals: dict[str, Any] = {"temperature": s.temperature, "top_p": s.top_p}
    for name, value in reals.items():
        if not isinstance(value, numbers.Real):
            raise EngineError(f"{name} is {value!r}; it must be a number.")
    stops: tuple[Any, Any] = (s.stop, s.stop_ids)
    if not isinstance(stops[0], tuple) or not all(isinstance(x, str) for x in stops[0]):
        raise EngineError(f"stop is {s.stop!r}; it must be a tuple of strings.")
    if not isinstance(stops[1], tuple) or not all(isinstance(x, numbers.Integral) for x in stops[1]):
        raise EngineError(f"stop_ids is {s.stop_ids!r}; it must be a tuple of token ids.")


def top_wanted(want: frozenset[str], max_top: int) -> int:
    """How many alternatives "top:K" asks for (0 = none); an unknown want raises, naming the near one."""
    count = 0
    for name in want:
        head, _, tail = name.partition(":")
        if head not in WANTS or (head == "entropy" and tail not in ("", "full")):
            near = difflib.get_close_matches(head, WANTS, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it knows {', '.join(WANTS)}."
            raise EngineError(f"The local engine cannot give {name!r}{hint}")
        if head == "top":
            if not tail.isdigit() or not 1 <= int(tail) <= max_top:
                raise EngineError(f"{name!r} is not top:K with K from 1 to {max_top}.")
            count = max(count, int(tail))
    return count


def check_room(request: Request, length: int, max_context: int, budget: int) -> int:
    """Total length at which the request must end; raises if not even one token, or not its reserved memory, fits."""
    if length == 0:
        raise EngineError("The prefix is empty; start from at least one token (for instance the eos id).")
    wanted = request.sampling.max_tokens
    if length + min(wanted, 1) > max_context:
        raise EngineError(
            f"The prefix of {length} tokens leaves no room in the context of {max_context}; shorten it to fit."
        )
    limit = min(length + wanted, max_context)
    if limit > budget:
        raise EngineError(
            f"The request needs {limit} tokens of memory ({length} prefix + {limit - length} new) and the engine has "
            f"{budget}; lower max_tokens or raise max_tokens_in_memory."
        )
    return limit


_KNOWN = 1 << 14
"""Affinities whose age is remembered."""


class Ranks:
    """How long each affinity has been known; requests without one are each their own."""

    def __init__(self) -> None:
        self._ranks: OrderedDict[str, int] = OrderedDict()
        self._next = 0

    def rank(self, affinity: str) -> int:
        """The lower, the earlier it came first."""
        rank = self._ranks.get(affinity) if affinity else None
        if rank is None:
            rank, self._next = self._next, self._next + 1
        if affinity:
            self._ranks[affinity] = rank
            self._ranks.move_to_end(affinity)
            if len(self._ranks) > _KNOWN:
                self._ranks.popitem(last=False)
        return rank


@dataclass(frozen=True, slots=True)
class Room:
    """Rows and columns of the slab."""

    rows: int
    columns: int


def wave(
    queue: deque[LocalRun], inside: int, longest: int, known: Callable[[Ids], int], *, max_batch: int, budget: int,
    prefill: int,
) -> tuple[list[LocalRun], int]:  # fmt: skip
    """Take from the queue what fits next to `inside` rows; return it and the longest length then reserved.

    At most about `prefill` prefix tokens are read in one step, so that a long queue does not stall the decoding;
    `known` says how many of a prefix need no reading. So siblings of a tree come in together and share what they can.
    """
    taken, seen, cost = list[LocalRun](), set[bytes](), 0
    while queue:
        run = queue[0]
        if taken and run.limit == len(run.ids):
            break  # it may write nothing, so it is no row; it ends as soon as it is first
        wider = max(longest, run.limit)
        if inside + len(taken) + 1 > min(max_batch, budget // columns_for(wider, budget)):
            break
        prefix = run.ids.tobytes()
        if prefix not in seen:
            new = len(run.ids) - known(run.ids)
            if taken and cost + new > prefill:
                break
            seen.add(prefix)
            cost += new
        taken.append(queue.popleft())
        longest = wider
    return taken, longest


def columns_for(longest: int, budget: int) -> int:
    """Width for a longest length: rounded up, so that the slab is rarely rebuilt, but never beyond the budget."""
    step = 64 if longest <= 512 else 256
    return max(longest, min(-(-longest // step) * step, budget))


def room_for(rows: int, longest: int, now: Room, *, max_batch: int, budget: int) -> Room:
    """The slab to use for `rows` sequences: the present one if it will do, else a new one with room to grow."""
    if rows <= now.rows and longest <= now.columns:
        return now
    columns = columns_for(longest, budget)
    most = min(max_batch, budget // columns)
    return Room(min(most, max(rows, 2 * now.rows)), columns)
