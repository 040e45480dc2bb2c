"""Events: every decision about a tree with the numbers that caused it. Viewer and doctor read these and never guess."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Kind = Literal[
    "start", "extend", "force", "fork", "cut", "graft", "splice", "stop", "prune", "pause", "resume", "fail", "retry",
    "act", "verify", "backfill", "allocate", "select", "drop", "train", "budget", "note",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Event:
    """Something decided at a node (None = about the whole tree): what, why in words, and the numbers behind it."""

    kind: Kind
    node: int | None
    why: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    at: float = 0.0
    """Seconds on the run's clock (the hand's, so that a virtual clock works too)."""
