"""An engine in a process of its own: takes orders, serves them, gathers the news until the pool asks for it.

However many requests are in flight, one call brings orders and one long poll takes news, so the cost of a hop is shared
by all that happened in the meantime.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from rolltree.cluster.prefixes import SeenPrefixes
from rolltree.cluster.wire import (
    Answer,
    Described,
    EndMessage,
    Failed,
    Follow,
    Lives,
    News,
    Order,
    PartMessage,
    Score,
    Spared,
    Start,
    StopMessage,
    Warned,
)
from rolltree.engine.prefixes import HandsOver, Offered, Taken
from rolltree.engine.protocol import Caches, Embedder, Engine, EngineError, Generation, Queued, token_codec
from rolltree.engine.run import SILENCE, carried
from rolltree.engine.samples import cut, join
from rolltree.tree.node import Array, FloatArray

BEAT = SILENCE / 6
"""Seconds without news after which it is said that the process lives."""
_URGENT = 0.1
"""Share of the usual latency that ends and answers wait for others to come along."""


class EngineHost:
    """Serves one engine to a pool. `latency` is how long increments may wait to travel together, in seconds."""

    def __init__(self, make: Callable[[], Engine], latency: float) -> None:
        self._make = make
        self._latency = latency
        self._engine: Engine | None = None
        self._runs: dict[int, Generation] = {}
        self._followers: dict[int, asyncio.Task[None]] = {}
        self._told: defaultdict[int, int] = defaultdict(int)
        self._tasks: set[asyncio.Task[None]] = set()
        self._news: list[News] = []
        self._any, self._urgent = asyncio.Event(), asyncio.Event()
        self._overheard = _Overheard(self._warned)
        self._seen = SeenPrefixes()
        self._spared = 0
        """Tokens of prefixes taken over that were told to be spared."""

    @property
    def engine(self) -> Engine:
        """The engine, once it is open."""
        if self._engine is None:
            raise EngineError("the engine of this process is not open yet")
        return self._engine

    async def open(self) -> Described:
        """Make the engine."""
        if self._engine is None:
            self._overheard.loop = asyncio.get_running_loop()
            _WARNINGS.addHandler(self._overheard)
            self._engine = self._make()
        codec = token_codec(self._engine, "a pool of engines")
        return Described(self._engine.capabilities, codec, self._engine.version, os.getpid())

    async def take(self, orders: Sequence[tuple[int, bytes | Order]]) -> None:
        """Begin with what was ordered, each with its request's number; all starts of one call begin as one batch."""
        for job, order in orders:
            try:
                self._take(cast("Order", pickle.loads(order)) if isinstance(order, bytes) else order)
            except Exception as error:  # one that cannot be read here cannot be read anywhere, and ends nobody else
                self._fail(job, EngineError(f"a request cannot be read in an engine's process: {error}"))

    async def news(self) -> list[News]:
        """What happened since the last call, as soon as anything has. For one caller at a time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(BEAT):
                await self._any.wait()
        if not self._any.is_set():
            return [Lives()]
        if not self._urgent.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._latency):
                    await self._urgent.wait()
        if self._urgent.is_set():
            await asyncio.sleep(self._latency * _URGENT)
        told, self._news = self._news, []
        self._any.clear()
        self._urgent.clear()
        return _merged(told)

    async def waiting(self) -> list[int]:
        """Requests that the engine has not begun, in the order in which they came."""
        return [job for job, run in self._runs.items() if isinstance(run, Queued) and not run.begun]

    async def known(self) -> list[str]:
        """Affinities of which the engine may keep prefixes; none where it hands nothing over."""
        return self._seen.names if isinstance(self._engine, HandsOver) else []

    async def export(self, names: Sequence[str] | None, texts: Sequence[Array]) -> tuple[Offered, Any]:
        """What the engine keeps of texts and of all below the prompts of affinities; None = of what most begin with."""
        if not isinstance(self._engine, HandsOver):
            return Offered(), None
        if names is None:
            return await self._engine.export_prefixes(self._seen.hottest())
        return await self._engine.export_prefixes([*texts, *self._seen.texts(names)], below=True)

    async def take_over(self, blocks: Any) -> Taken:
        """Keep what another engine has exported."""
        if not isinstance(self._engine, HandsOver):
            return Taken(refused="engine")
        return await self._engine.import_prefixes(blocks)

    async def pause(self) -> None:
        """Stop making tokens."""
        await self.engine.pause()

    async def resume(self) -> None:
        """Go on."""
        await self.engine.resume()

    async def update(self, weights: Any, version: int, caches: Caches) -> None:
        """Take new weights."""
        await self.engine.update_weights(weights, version, caches=caches)

    async def embeddings(self) -> FloatArray:
        """The engine's input embeddings."""
        if not isinstance(self.engine, Embedder):
            raise EngineError(f"{type(self.engine).__name__} has no embeddings")
        return await self.engine.embeddings()

    async def close(self) -> None:
        """Release what the engine holds."""
        _WARNINGS.removeHandler(self._overheard)
        if self._engine is not None:
            await self._engine.close()

    def _take(self, order: Order) -> None:
        match order:
            case Start(job, request, follow):
                try:
                    self._runs[job] = run = self.engine.submit(request)
                    self._seen.note(request)
                except BaseException as error:  # refused, or broken: either way this request's news
                    return self._fail(job, carried(error))
                if follow:
                    self._follow(job, run)
                self._begin(self._serve(job, run))
            case Follow(job):
                if job in self._runs and job not in self._followers:
                    self._follow(job, self._runs[job])
            case StopMessage(job, finish):
                if job in self._runs:
                    self._runs[job].stop(finish)
            case Score():
                self._begin(self._score(order))
        return None

    def _begin(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _follow(self, job: int, run: Generation) -> None:
        async def follow() -> None:
            async for part in run:
                self._told[job] += len(part.actions)
                self._tell(PartMessage(job, part))

        self._followers[job] = self._begin(follow())

    async def _serve(self, job: int, run: Generation) -> None:
        try:
            sample = await run
            if (follower := self._followers.pop(job, None)) is not None:
                await follower
            self._tell_spared()
            self._tell(EndMessage(job, cut(sample, self._told.pop(job, 0))))
        except BaseException as error:  # the pool's caller hears it, whatever it is: nobody else will say that it ended
            if (follower := self._followers.pop(job, None)) is not None:
                await asyncio.gather(follower, return_exceptions=True)
            self._fail(job, carried(error))
        finally:
            self._runs.pop(job, None)

    async def _score(self, order: Score) -> None:
        try:
            self._tell(Answer(order.job, await self.engine.score(order.tokens, order.start, order.want)))
        except BaseException as error:  # as above
            self._fail(order.job, carried(error))

    def _fail(self, job: int, error: Exception) -> None:
        final = isinstance(error, EngineError)
        self._told.pop(job, None)
        self._tell(Failed(job, str(error) if final else f"{type(error).__name__}: {error}", final))

    def _tell_spared(self) -> None:
        spared = self._engine.spared if isinstance(self._engine, HandsOver) else 0
        if spared > self._spared:
            self._tell(Spared(spared - self._spared))
            self._spared = spared

    def _warned(self, said: str) -> None:
        self._tell(Warned(said))

    def _tell(self, news: News) -> None:
        self._news.append(news)
        self._any.set()
        if not isinstance(news, PartMessage):
            self._urgent.set()


_WARNINGS = logging.getLogger("rolltree")


class _Overheard(logging.Handler):
    """Passes on what the package warns of in this process, from any thread."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell
        self.loop: asyncio.AbstractEventLoop | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """One warning."""
        with suppress(RuntimeError):  # the loop has ended, and with it whoever could have heard
            if self.loop is not None:
                self.loop.call_soon_threadsafe(self._tell, record.getMessage())


def _merged(told: Sequence[News]) -> list[News]:
    """All increments of one request as one, inside its end where it has ended; otherwise in the order of the ends."""
    parts: defaultdict[int, list[PartMessage | EndMessage]] = defaultdict(list)
    out: list[News] = []
    for news in told:
        if isinstance(news, PartMessage | EndMessage):
            parts[news.job].append(news)
        else:
            out.append(news)
    for job, pieces in parts.items():
        whole = join([piece.sample for piece in pieces])
        out.append(EndMessage(job, whole) if isinstance(pieces[-1], EndMessage) else PartMessage(job, whole))
    return out
