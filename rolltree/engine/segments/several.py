"""Several foreign engines with one policy as one: each call goes to one of them, new weights go to all.

A call that breaks is taken up by another engine, since the writer asks for the rest again. An engine that broke is left
alone for a while; one that came back with other weights, or missed an update, gets nothing before the next update.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from rolltree.engine.protocol import EngineError
from rolltree.engine.route import Router
from rolltree.engine.segments.weights import handed_over
from rolltree.engine.segments.wire import (
    Backend,
    BrokenError,
    Piece,
    Reach,
    SegmentRead,
    SegmentRequest,
    StaleWeightsError,
)

T = TypeVar("T")
_FIRST, _LONGEST = 1.0, 30.0
"""Seconds that an engine is left alone after its first break, and at most."""
_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Place:
    """One of the engines, and how it stands."""

    backend: Backend
    calls: int = 0
    """Calls in flight."""
    broke: int = 0
    """Breaks in a row."""
    until: float = 0.0
    """When it is asked again."""
    stale: str = ""
    """Why it has other weights than the rest; empty where it has the same."""


@dataclass(slots=True)
class SeveralBackends:
    """Engines of one policy as one backend (see `rolltree.engine.segments.Backend`)."""

    backends: Sequence[Backend]
    clock: Callable[[], float] = time.monotonic
    _places: list[_Place] = field(init=False)
    _router: Router[_Place] = field(default_factory=Router[_Place])

    def __post_init__(self) -> None:
        if not self.backends:
            raise EngineError("no engines were given; name at least one server")
        first = self.backends[0]
        for other in self.backends[1:]:
            for what in ("vocab", "of_sampling"):
                if getattr(other.reach, what) != getattr(first.reach, what):
                    raise EngineError(
                        f"{first.name} and {other.name} differ ({what}: {getattr(first.reach, what)} and "
                        f"{getattr(other.reach, what)}); serve the same policy with the same settings everywhere"
                    )
            if other.version != first.version:
                raise EngineError(
                    f"{first.name} has weight version {first.version} and {other.name} {other.version}; serve the same "
                    "weights everywhere"
                )
        self._places = [_Place(backend) for backend in self.backends]

    @property
    def name(self) -> str:
        """All of them."""
        return f"{len(self._places)} engines, first {self._places[0].backend.name}"

    @property
    def reach(self) -> Reach:
        """As far as all of them go."""
        each = [backend.reach for backend in self.backends]
        return replace(
            each[0], context=min(r.context for r in each), alternatives=min(r.alternatives for r in each),
            scores=all(r.scores for r in each), updates=all(r.updates for r in each),
        )  # fmt: skip

    @property
    def version(self) -> int:
        """Version of those that have the last weights."""
        return max(place.backend.version for place in self._places)

    async def write(self, ask: SegmentRequest) -> AsyncGenerator[Piece]:
        """Write on, at the engine that has read the prefix unless it is much busier than another."""
        place = self._choose(ask.affinity)
        place.calls += 1
        try:
            async with aclosing(place.backend.write(ask)) as pieces:
                async for piece in pieces:
                    self._well(place, ask.affinity)
                    yield piece
        except BrokenError as error:
            self._broke(place, error)
            raise
        except StaleWeightsError as error:
            raise self._left_behind(place, error) from error
        finally:
            place.calls -= 1

    async def read(self, tokens: Sequence[int], start: int, alternatives: int) -> SegmentRead:
        """Log-probs by the idlest of them."""
        place = self._choose("")
        place.calls += 1
        try:
            return await place.backend.read(tokens, start, alternatives)
        except BrokenError as error:
            self._broke(place, error)
            raise
        except StaleWeightsError as error:
            raise self._left_behind(place, error) from error
        finally:
            place.calls -= 1

    async def load(self, weights: Any, version: int) -> None:
        """Give all of them the new weights, which are written once. Those that cannot take them are left out until the
        next update; it fails where none can."""
        with handed_over(weights) as folder:
            answers = await self._all(lambda place: place.backend.load(folder, version))
        failed = [(place, answer) for place, answer in zip(self._places, answers, strict=True) if answer is not None]
        if len(failed) == len(self._places):
            raise failed[0][1]
        for place in self._places:
            place.stale, place.broke, place.until = "", 0, 0.0
        for place, error in failed:
            place.stale = f"did not take version {version} ({error})"
            _log.warning("%s %s; the others go on without it until the next update", place.backend.name, place.stale)

    async def close(self) -> None:
        """Release all of them."""
        answers = await self._all(lambda place: place.backend.close())
        for error in answers:
            if error is not None:
                raise error

    async def _all(self, call: Callable[[_Place], Awaitable[None]]) -> list[Exception | None]:
        answers = await asyncio.gather(*(call(place) for place in self._places), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, Exception):
                raise answer
        return [answer if isinstance(answer, Exception) else None for answer in answers]

    def _choose(self, affinity: str) -> _Place:
        able = [place for place in self._places if not place.stale]
        if not able:
            said = "; ".join(f"{place.backend.name} {place.stale}" for place in self._places)
            raise EngineError(f"no engine has the weights of version {self.version}: {said}")
        now = self.clock()
        ready = [place for place in able if place.until <= now] or [min(able, key=lambda place: place.until)]
        return self._router.choose(affinity, {place: place.calls for place in ready})

    def _well(self, place: _Place, affinity: str) -> None:
        place.broke = 0
        self._router.note(affinity, place)

    def _broke(self, place: _Place, error: BrokenError) -> None:
        place.broke += 1
        wait = max(error.after, min(_LONGEST, _FIRST * 2.0 ** min(place.broke - 1, 30)))
        place.until = self.clock() + wait
        self._router.forget(place)
        _log.warning("%s broke (%s); it is left alone for %.0f s", place.backend.name, error, wait)

    def _left_behind(self, place: _Place, error: StaleWeightsError) -> Exception:
        """What the caller hears: another one can go on, or nobody can."""
        place.stale = str(error)
        self._router.forget(place)
        if all(other.stale for other in self._places):
            return error
        _log.warning("%s; the others go on without it until the next update", error)
        return BrokenError(str(error))
