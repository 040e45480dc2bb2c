"""What a pool and the process of an engine say to each other: orders one way, news the other, many at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from rolltree.engine.protocol import Capabilities, Codec, Request, Sample, Scored
from rolltree.tree.node import Array, Finish, Top


@dataclass(frozen=True, slots=True)
class Start:
    """Extend a prefix; `follow`: report increments."""

    job: int
    request: Request
    follow: bool


@dataclass(frozen=True, slots=True)
class Follow:
    """Report increments from now on, beginning with what exists."""

    job: int


@dataclass(frozen=True, slots=True)
class Stop:
    """End a request with what exists."""

    job: int
    finish: Finish


@dataclass(frozen=True, slots=True)
class Score:
    """Log-probs of tokens[start:]."""

    job: int
    tokens: Array
    start: int
    want: frozenset[str]


Order = Start | Follow | Stop | Score


@dataclass(frozen=True, slots=True)
class Part:
    """An increment of a sample."""

    job: int
    sample: Sample


@dataclass(frozen=True, slots=True)
class End:
    """A sample has ended; `sample` is what no part has carried."""

    job: int
    sample: Sample


@dataclass(frozen=True, slots=True)
class Answer:
    """What a score gave."""

    job: int
    scored: Scored


@dataclass(frozen=True, slots=True)
class Failed:
    """The engine raised; `final` where asking again would only repeat it (an EngineError)."""

    job: int
    why: str
    final: bool


News = Part | End | Answer | Failed


@dataclass(frozen=True, slots=True)
class Described:
    """An engine that has just opened."""

    capabilities: Capabilities
    codec: Codec
    version: int
    pid: int


class Remote(Protocol):
    """Another process. Each method of what lives there is called by name; LostError once it is gone."""

    async def call(self, method: str, *args: Any) -> Any:
        """Await one call; its own exceptions are raised here as they are."""
        ...

    def pack(self, order: Order) -> Any:
        """An order as it travels; ClusterError where it cannot."""
        ...

    def kill(self) -> None:
        """End it; idempotent."""
        ...


class Transport(Protocol):
    """Where processes come from."""

    def spawn(self, kind: Callable[..., Any], *args: Any) -> Remote:
        """A new process with an object made by `kind(*args)` in it; returns at once."""
        ...

    def share(self, value: Any) -> Any:
        """A token for a value: passed as an argument it arrives as the value, which is moved once for all."""
        ...


def join(parts: Sequence[Sample]) -> Sample:
    """Increments as one sample, which ends as the last of them does."""
    if len(parts) == 1:
        return parts[0]
    last = parts[-1]
    entropies, tops = [p.entropy for p in parts if p.entropy is not None], [p.top for p in parts if p.top is not None]
    return replace(
        last,
        actions=np.concatenate([p.actions for p in parts]),
        logp=np.concatenate([p.logp for p in parts]),
        logq=np.concatenate([p.logq for p in parts]),
        version=np.concatenate([p.version for p in parts]),
        entropy=np.concatenate(entropies) if entropies else None,
        top=Top(np.concatenate([t.ids for t in tops]), np.concatenate([t.logp for t in tops])) if tops else None,
        # Each increment repeats the prefix's cost or says 0; it was paid once.
        prefilled=max(p.prefilled for p in parts),
    )


def cut(sample: Sample, start: int, stop: int | None = None) -> Sample:
    """The tokens of a sample from start to stop, with everything that belongs to them."""
    piece = slice(start, stop)
    top = sample.top
    return replace(
        sample, actions=sample.actions[piece], logp=sample.logp[piece], logq=sample.logq[piece],
        version=sample.version[piece], entropy=None if sample.entropy is None else sample.entropy[piece],
        top=None if top is None else Top(top.ids[piece], top.logp[piece]),
    )  # fmt: skip


def nothing(finish: Finish) -> Sample:
    """A sample without a token."""
    none = np.zeros(0, np.float32)
    return Sample(np.zeros(0, np.int32), none, none, np.zeros(0, np.int32), finish)
