"""What a pool and the process of an engine say to each other: orders one way, news the other, many at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from rolltree.engine.protocol import Capabilities, Codec, Request, Sample, Scored
from rolltree.tree.node import Array, Finish


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
class StopMessage:
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


Order = Start | Follow | StopMessage | Score


@dataclass(frozen=True, slots=True)
class PartMessage:
    """An increment of a sample."""

    job: int
    sample: Sample


@dataclass(frozen=True, slots=True)
class EndMessage:
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


@dataclass(frozen=True, slots=True)
class Lives:
    """The process goes on and has nothing else to say."""


@dataclass(frozen=True, slots=True)
class Warned:
    """What the process warned of: an engine without progress, or one that ran out of memory."""

    said: str


@dataclass(frozen=True, slots=True)
class Spared:
    """Requests have found so many more tokens that another engine had read and handed over."""

    tokens: int


News = PartMessage | EndMessage | Answer | Failed | Lives | Warned | Spared


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

    async def parted(self, method: str, *args: Any) -> tuple[Any, Any]:
        """Await a call that answers a pair, of which the second part stays where it is: what comes back is a token for
        it, which passed as an argument to another process arrives there as the value."""
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
