"""What a strategy asks of a hand, and the request that comes of it while it is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from rolltree.control.ledger import Hold
from rolltree.engine.protocol import Forks, Generation, LogitsHook, Request
from rolltree.tree import Birth, Finish, Node

WRITTEN: frozenset[str] = frozenset({"policy", "splice"})
"""Roles that count towards the limit of policy tokens of a rollout."""


class SamplingOptions(TypedDict, total=False):
    """How to sample; what is not given comes from the run's defaults."""

    max_tokens: int | None
    """Length of this segment; the rollout's limit, the context and the budget clip it. None = as far as they allow."""
    temperature: float
    top_p: float
    top_k: int
    stop: tuple[str, ...]
    """Strings to stop at, besides the task's own."""
    stop_ids: tuple[int, ...]
    ignore_eos: bool
    hook: LogitsHook | None
    forks: Forks
    """Whether the strategy will go on from what is written; see `Request`."""


@dataclass(frozen=True, slots=True)
class Continuations:
    """What a strategy asked for: how many continuations, drawn how, with which extras, and why."""

    n: int
    draw: SamplingOptions
    want: frozenset[str] = frozenset()
    birth: Birth | None = None
    why: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class PendingRequest:
    """One request: the node that receives it, what is reserved for it, and how much of it is written down."""

    node: Node
    request: Request
    decoded: Hold
    prefilled: Hold
    at_limit: Finish | None
    """What the end of `max_tokens` means: the rollout's limit ("length"), "budget", or None: the segment is full."""
    run: Generation | None = None
    refused: Exception | None = None
    timer: asyncio.TimerHandle | None = None
    written: int = 0
    halted: bool = False
    """Whether the strategy stopped it (and so decides what becomes of the leaf)."""
