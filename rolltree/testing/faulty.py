"""Engines and tasks that break on purpose: what the contract tests inject."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import replace
from random import Random
from typing import Any, Literal, cast

from rolltree.engine.protocol import (
    Caches,
    Capabilities,
    Channel,
    Embedder,
    Engine,
    EngineError,
    Generation,
    Request,
    Sample,
    Scored,
)  # fmt: skip
from rolltree.engine.samples import nothing
from rolltree.task.grammar import Spoken
from rolltree.task.protocol import Item, Reply, Split, Task, Verdict
from rolltree.tree.node import Array, Finish, FloatArray

REQUESTS = 20_000
"""More requests than any strategy needs on the tiny tasks: one that asks on and on is stopped here."""


class Wrapped:
    """An engine that does what another one does; subclasses break one thing."""

    def __init__(self, inner: Engine) -> None:
        self.inner = inner

    @property
    def capabilities(self) -> Capabilities:
        """Those of the inner engine."""
        return self.inner.capabilities

    @property
    def codec(self) -> Channel:
        """That of the inner engine."""
        return self.inner.codec

    @property
    def version(self) -> int:
        """That of the inner engine."""
        return self.inner.version

    def submit(self, request: Request) -> Generation:
        """Passed on."""
        return self.inner.submit(request)

    async def score(self, tokens: Array, start: int, want: frozenset[str] = frozenset()) -> Scored:
        """Passed on."""
        return await self.inner.score(tokens, start, want)

    async def embeddings(self) -> FloatArray:
        """Passed on, where there are any."""
        if not isinstance(self.inner, Embedder):
            raise EngineError(f"{type(self.inner).__name__} has no embeddings")
        return await self.inner.embeddings()

    async def pause(self) -> None:
        """Passed on."""
        await self.inner.pause()

    async def update_weights(self, weights: Any, version: int, *, caches: Caches = "recompute") -> None:
        """Passed on."""
        await self.inner.update_weights(weights, version, caches=caches)

    async def resume(self) -> None:
        """Passed on."""
        await self.inner.resume()

    async def close(self) -> None:
        """Passed on."""
        await self.inner.close()


class DoesNothing:
    """A run that ends without a token."""

    def __init__(self, finish: Finish) -> None:
        self.sample = nothing(finish)

    def __await__(self) -> Generator[Any, None, Sample]:
        yield  # one turn of the event loop, as a real engine would take
        return self.sample

    async def __aiter__(self) -> AsyncIterator[Sample]:
        return
        yield self.sample

    def stop(self, finish: Finish = "abort") -> None:
        """Too late."""


class Mute(Wrapped):
    """Answers every request with no tokens."""

    def __init__(self, inner: Engine, finish: Finish) -> None:
        super().__init__(inner)
        self.finish: Finish = finish
        self.asked = 0

    def submit(self, request: Request) -> Generation:
        """Nothing, at once; refuses in the end, so that an endless loop shows."""
        self.asked += 1
        assert self.asked < REQUESTS, f"{REQUESTS} requests to an engine that adds nothing: a loop ignores its end"
        return DoesNothing(self.finish)


class Flaky:
    """A task (or, by `engine`, an engine) of which one part raises on every third call, for good on some of them."""

    def __init__(self, task: Task, part: Literal["engine", "step", "verify"]) -> None:
        self.task = task
        self.part = part
        self.calls = 0
        self.raised = 0
        self.name, self.level = task.name, task.level
        self.stop, self.max_tokens, self.max_turns = task.stop, task.max_tokens, task.max_turns
        if isinstance(task, Spoken):
            self.grammar = task.grammar

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Those of the task."""
        return self.task.items(split, seed)

    def start(self, item: Item) -> tuple[Any, str | None]:
        """As the task does."""
        return self.task.start(item)

    def act(self, item: Item, state: Any, rng: Random, noise: float = 0.0) -> str:
        """As the task's expert does."""
        return cast(Any, self.task).act(item, state, rng, noise)

    async def step(self, item: Item, state: Any, text: str) -> Reply:
        """As the task does, or raises."""
        self.trip("step")
        return await self.task.step(item, state, text)

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """As the task does, or raises."""
        self.trip("verify")
        return replace(await self.task.verify(item, state, text), why="checked")

    def trip(self, part: str) -> None:
        """Raise on calls 3, 4, 5 of every 6: some are healed by a second try, some are not."""
        if part != self.part:
            return
        self.calls += 1
        if self.calls % 6 in (3, 4, 5):
            self.raised += 1
            raise ConnectionError(f"the {part} is unreachable (injected, call {self.calls})")

    def engine(self, inner: Engine) -> Engine:
        """An engine that trips in the same way."""
        return _Tripping(inner, self)


class _Tripping(Wrapped):
    def __init__(self, inner: Engine, faults: Flaky) -> None:
        super().__init__(inner)
        self.faults = faults

    def submit(self, request: Request) -> Generation:
        self.faults.trip("engine")
        return self.inner.submit(request)
