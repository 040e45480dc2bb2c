"""Many engines as one (see `rolltree.engine.protocol.Engine`)."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from rolltree.cluster.elastic import Elastic
from rolltree.cluster.errors import ClusterError
from rolltree.cluster.hub import Health, Hub
from rolltree.cluster.jobs import SampleJob
from rolltree.cluster.replicas import Replicas, error_line
from rolltree.cluster.run import PoolRun
from rolltree.cluster.wire import Transport
from rolltree.engine.protocol import Caches, Engine, EngineError, Request, Scored
from rolltree.engine.route import Router
from rolltree.errors import RolltreeError
from rolltree.tree.node import Array, Finish, FloatArray

T = TypeVar("T")
_Calls = defaultdict[asyncio.AbstractEventLoop, list[Callable[[], None]]]


class PoolEngine:
    """`size` engines, each made by `make` in a process of its own; opening it waits for them.

    A request goes to the engine that knows its prefix unless that one is much busier than another (`Router`: `free`,
    `slack`). An engine that dies is replaced, under the present weights, and what it was doing is finished by others:
    nothing is lost and no token is counted twice. Requests without a seed get one here, so that they too can be taken
    up again. A request with which `lives` engines died fails.

    Increments travel together, at most `latency` seconds late, and only for runs that somebody iterates; `follow` sends
    all of them, so that a death costs the last moments of long samples and not all of them, for some overhead.
    Opening waits `patience` seconds for all engines, and then goes on with those that are there. `handover` is how long
    an engine that leaves or is new may take to give or get what was read of prefixes; 0 = they are read again. With
    `elastic` the pool grows and shrinks with the load, from `size` on.
    """

    def __init__(
        self,
        make: Callable[[], Engine],
        size: int,
        transport: Transport,
        *,
        latency: float = 0.02,
        follow: bool = False,
        lives: int = 3,
        patience: float = 120.0,
        free: int = 8,
        slack: float = 1.5,
        seed: int | None = None,
        handover: float = 30.0,
        elastic: Elastic | None = None,
    ) -> None:
        if size < 1:
            raise ClusterError(f"a pool of {size} engines cannot answer; give at least 1")
        self._follow = follow
        self._rng = np.random.default_rng(seed)
        self._fresh: list[SampleJob] = []
        self._closed = False
        self._calls: _Calls = defaultdict(list)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_live, args=(self._loop,), name="rolltree-pool", daemon=True)
        self._thread.start()
        weakref.finalize(self, _end, self._loop, self._thread)
        try:
            router = Router["Any"](free=free, slack=slack)
            self._hub = asyncio.run_coroutine_threadsafe(
                _open(transport, make, size, latency, router, lives, patience, handover), self._loop
            ).result()
        except BaseException:
            _end(self._loop, self._thread)
            raise
        if elastic is not None:
            self._loop.call_soon_threadsafe(self._hub.follow_load, elastic)
        self.codec = self._hub.replicas.codec
        """Their tokenizer."""
        self.capabilities = self._hub.replicas.capabilities
        """What each engine can do."""

    @property
    def version(self) -> int:
        """Version of the weights that all of them write under."""
        return self._hub.replicas.version

    @property
    def health(self) -> Health:
        """How many are at work and on what, and what became of the others."""
        return self._hub.health

    @property
    def handover(self) -> float:
        """Seconds that a hand-over of prefixes may take; 0 = they are read again."""
        return self._hub.handovers.seconds

    @handover.setter
    def handover(self, seconds: float) -> None:
        self._hub.handovers.seconds = seconds

    @property
    def numbers(self) -> dict[str, float]:
        """How it stands, by the names of metrics."""
        return self.health.numbers

    def submit(self, request: Request) -> PoolRun:
        """Start a request. What only its engine can refuse is raised where the run is awaited."""
        if self._closed:
            raise EngineError("The engine is closed; make a new one.")
        s, context = request.sampling, self.capabilities.max_context
        if len(request.prefix) + min(s.max_tokens, 1) > context:
            raise EngineError(
                f"The prefix of {len(request.prefix)} tokens leaves no room in the context of {context}; "
                "shorten it to fit."
            )
        if s.seed is None:
            request = replace(request, sampling=replace(s, seed=int(self._rng.integers(1 << 63))))
        run = PoolRun(request, follow=self._follow)
        job = SampleJob(next(self._hub.numbers), request, run, self._post)
        run.ask_stop = partial(self._stop, job)
        run.ask_follow = partial(self._ask_follow, job)
        if not self._fresh:
            # One order for everything submitted in this turn of the loop, so that a group starts as one batch.
            run.loop.call_soon(self._flush)
        self._fresh.append(job)
        return run

    async def score(self, tokens: Array, start: int, want: frozenset[str] = frozenset()) -> Scored:
        """Log-probs of tokens[start:], by the least busy engine."""
        return await self._ask(self._hub.score(tokens, start, want))

    async def embeddings(self) -> FloatArray:
        """The input-embedding table, of any of the engines."""
        return await self._ask(self._hub.replicas.any("embeddings"))

    async def pause(self) -> None:
        """Have all engines stop making tokens."""
        self._flush()
        await self._ask(_whole(self._hub.replicas.pause()))

    async def resume(self) -> None:
        """Have all engines go on."""
        await self._ask(_whole(self._hub.replicas.resume()))

    async def update_weights(self, weights: Any, version: int, *, caches: Caches = "recompute") -> None:
        """Give all engines, and those that will replace them, new weights in one cut.

        They are moved into the cluster once. A folder must be readable on every node.
        """
        self._flush()
        await self._ask(_whole(self._hub.replicas.update(weights, version, caches)))

    async def resize(self, size: int) -> None:
        """Grow or shrink while running; returns when the new ones work and the old ones have handed over."""
        if size < 1:
            raise ClusterError(f"a pool of {size} engines cannot answer; give at least 1, or close it")
        await self._ask(_whole(self._hub.resize(size)))

    async def close(self) -> None:
        """End every run with what it has and every process."""
        if self._closed:
            return
        self._closed = True
        self._flush()
        await self._ask(_whole(self._hub.close()))
        await asyncio.sleep(0)  # ends that were posted to this loop are heard before the caller goes on
        _end(self._loop, self._thread)

    # -- between the two event loops -------------------------------------------------------------------------------

    def _flush(self) -> None:
        if self._fresh:
            jobs, self._fresh = self._fresh, []
            self._loop.call_soon_threadsafe(self._hub.accept, jobs)

    def _stop(self, job: SampleJob, finish: Finish) -> None:
        self._flush()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hub.stop, job, finish)

    def _ask_follow(self, job: SampleJob) -> None:
        if job not in self._fresh and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hub.follow, job)

    async def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise EngineError("The engine is closed; make a new one.")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _post(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        """From the pool's loop into a caller's: one hop for all that is said in one turn."""
        if not self._calls:
            self._loop.call_soon(self._deliver)
        self._calls[loop].append(call)

    def _deliver(self) -> None:
        calls, self._calls = self._calls, defaultdict(list)
        for loop, todo in calls.items():
            try:
                loop.call_soon_threadsafe(_all, todo)
            except RuntimeError:
                # The loop is closed: nobody is left to hear it.
                if not loop.is_closed():
                    raise


async def _open(
    transport: Transport, make: Callable[[], Engine], size: int, latency: float, router: Router[Any], lives: int,
    patience: float, handover: float,
) -> Hub:  # fmt: skip
    replicas = Replicas(transport, await asyncio.to_thread(transport.share, make), size, latency)
    hub = Hub(replicas, router, lives, handover)
    try:
        async with asyncio.timeout(patience):
            await replicas.fill()
    except TimeoutError:
        pass  # fewer than asked for are enough to begin with; the others join when there is room
    if replicas.members:
        return hub
    await hub.close()
    if isinstance(replicas.trouble, RolltreeError):
        raise replicas.trouble
    if replicas.trouble is not None:
        raise ClusterError(f"no engine could be started: {error_line(replicas.trouble)}") from replicas.trouble
    raise ClusterError(
        f"no engine could be started within {patience:g} s: the cluster has no room for one; add nodes, or ask for "
        "fewer processors per engine"
    )


_under_way: set[asyncio.Task[Any]] = set()
"""Held here, since an event loop does not keep what it runs alive."""


async def _whole(work: Coroutine[Any, Any, T]) -> T:
    """See it through although its caller gives up: half an update would leave engines paused, or under two versions."""
    task = asyncio.ensure_future(work)
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)
    return await asyncio.shield(task)


def _all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()


def _live(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.run_until_complete(_farewell())
    loop.close()


async def _farewell() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(timeout=10)
