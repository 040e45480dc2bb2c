"""Where a piece ends a sample: the same rules for every engine, applied to token ids and to no one's text but ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rolltree.engine.local.stops import EOS, MAYBE, STOP, StopTables
from rolltree.engine.protocol import Sampling
from rolltree.tree.node import Finish

_READ = 8
"""Tokens read back per character of the longest stop string: characters can take several tokens."""
_NAMED = 1024
"""Most ids an engine is told to end at for the sake of stop strings."""


@dataclass(frozen=True, slots=True)
class End:
    """How many tokens of a piece belong to the sample, and why it ends there ("" = it goes on)."""

    keep: int
    finish: Finish | None = None
    stopped_by: str = ""


def foreseen(tables: StopTables, s: Sampling, eos: int) -> tuple[tuple[int, ...], bool]:
    """Ids at which an engine may end a sample by itself, and whether a sample can end nowhere else before its limit.

    A stop string of one ASCII character stands in one token, whatever the tokenizer; a longer one may straddle several,
    and only we find it.
    """
    eos_too = () if s.ignore_eos or eos < 0 else (eos,)
    certain = tables.certain(s.stop) if s.stop else ()
    many = len(certain) > _NAMED
    alone = all(len(x) == 1 and x.isascii() and x != " " for x in s.stop) and not many
    return (*s.stop_ids, *(() if many else certain), *eos_too), alone


def find_end(tables: StopTables, s: Sampling, written: Sequence[int], ids: Sequence[int], room: int) -> End:
    """Read new ids after those written; `room` is how many may still come."""
    meaning, reach = tables.meaning(s), _READ * max(map(len, s.stop), default=0) + _READ
    for i, token in enumerate(ids[:room]):
        # An id outside the vocabulary ends nothing; it is refused when it is written down.
        bits = int(meaning[token]) if 0 <= token < len(meaning) else 0
        if bits & EOS:
            return End(i + 1, "eos")
        fired = tables.fired([*written[-reach:], *ids[: i + 1]], s.stop) if bits & MAYBE else ""
        if fired or bits & STOP:
            return End(i + 1, "stop", fired)
    return End(room, "length") if len(ids) >= room else End(len(ids))
