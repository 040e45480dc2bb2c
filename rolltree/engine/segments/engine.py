"""An engine over a foreign one: the contract's rules are kept here, once; the foreign engine only writes and reads."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from rolltree.engine.local.admit import check_room, check_sampling, check_tokens
from rolltree.engine.local.stops import StopTables
from rolltree.engine.protocol import Caches, Capabilities, Codec, EngineError, Request, Scored, Sleeper
from rolltree.engine.run import Watchdog
from rolltree.engine.segments.distribution import alternatives_for, entropy_of
from rolltree.engine.segments.run import SegmentRun
from rolltree.engine.segments.wire import Backend, BrokenError, SegmentRead
from rolltree.engine.segments.writer import SegmentPatience, Turnstile, Writer
from rolltree.tree.node import Array

_DOES = ("stream", "abort", "greedy", "shared-prefix", "versions")


class SegmentEngine:
    """Samples and scores through a backend (see `rolltree.engine.protocol.Engine`).

    Prefixes are shared by the foreign engine's own cache. Under `caches="recompute"` every update salts it anew, so
    nothing written under new weights ever reads keys and values of old ones; under "keep" the salt stays.
    """

    def __init__(
        self, backend: Backend, codec: Codec, *, patience: SegmentPatience | None = None, seed: int | None = None
    ) -> None:
        self.backend = backend
        """The foreign engine behind it."""
        self.codec = codec
        """Its tokenizer."""
        self.capabilities = _capabilities(backend)
        """What it can do."""
        self._patience = patience or SegmentPatience()
        self._tables = StopTables(codec, backend.reach.vocab)
        self._rng = np.random.default_rng(seed)
        self._salt = f"rolltree-{backend.version}"
        self._writing, self._reading = Turnstile(), Turnstile()
        self._tasks: dict[asyncio.Task[None], tuple[Writer, SegmentRun]] = {}
        self._pauses = 0
        self._closed = False
        self._submitted = 0
        self._watchdog = Watchdog(self)

    @property
    def version(self) -> int:
        """Version of the weights that write now."""
        return self.backend.version

    @property
    def in_flight(self) -> list[SegmentRun]:
        """Runs that have not ended."""
        return [run for _, run in self._tasks.values() if not run.ended]

    def submit(self, request: Request) -> SegmentRun:
        """Start a request; it is sent with the loop's next turn."""
        self._open()
        reach, s = self.backend.reach, request.sampling
        ids = check_tokens(request.prefix, reach.vocab, "prefix")
        check_sampling(s, reach.vocab)
        if s.hook is not None:
            raise EngineError(f"{self._name} runs in another process and cannot call a hook; use the local engine.")
        top, entropy = self._wanted(request.want)
        reported = alternatives_for(s, top=top, entropy=entropy and not reach.entropy, reach=reach, who=self._name)
        limit = check_room(request, len(ids), reach.context, reach.context)
        seed = int(self._rng.integers(1 << 62)) if s.seed is None else s.seed
        run = SegmentRun(request, ids.tolist(), limit - len(ids), seed, top, reported)
        if run.most == 0:
            run.end("length")
            return run
        self._watchdog.wake(run.loop)
        writer = Writer(
            self.backend, self._writing, self._tables, self.codec.eos_id, self._patience, lambda: self._salt
        )
        self._submitted += 1
        task = writer.start(run)
        self._tasks[task] = writer, run
        task.add_done_callback(self._forget)
        return run

    async def score(self, tokens: Array, start: int, want: frozenset[str] = frozenset()) -> Scored:
        """Log-probs of tokens[start:]; start must be 1 or more, since the first token follows nothing."""
        self._open()
        reach = self.backend.reach
        if not reach.scores:
            raise EngineError(f"{self._name} cannot score given tokens; use an engine that can.")
        ids = check_tokens(tokens, reach.vocab, "tokens to score").tolist()
        top, entropy = self._wanted(want)
        if top:
            raise EngineError(f"{self._name} scores entropy, not alternatives; drop 'top' from want.")
        if not 1 <= start <= len(ids):
            raise EngineError(f"start is {start}; it must be from 1 to the {len(ids)} tokens given.")
        if len(ids) >= reach.context:
            raise EngineError(f"{len(ids)} tokens exceed the context of {reach.context}; score a shorter text.")
        async with self._reading:
            version = self.version
            read = await self._read(ids, start, reach.vocab if entropy else 0) if start < len(ids) else SegmentRead(())
        rows = np.array([p for _, p in read.alternatives], np.float64).reshape(-1, reach.vocab) if entropy else None
        return Scored(
            np.array(read.logp, np.float32), version,
            entropy=None if rows is None else entropy_of(rows).astype(np.float32),
        )  # fmt: skip

    async def pause(self) -> None:
        """Stop making tokens: calls in flight end, their runs keep what they have and wait."""
        if self._pauses == 0:
            self._pauses = 1
            try:
                await self._quiet()
            except BaseException:
                self._pauses = 0
                raise

    async def resume(self) -> None:
        """Go on; runs that wait are continued from what they have."""
        if self._pauses:
            self._pauses = 0
            self._writing.open()

    async def update_weights(self, weights: Any, version: int, *, caches: Caches = "recompute") -> None:
        """Take new weights under a new version; what is in flight is interrupted and then goes on under them."""
        self._open()
        if not self.backend.reach.updates:
            raise EngineError(f"{self._name} takes no new weights; use the local or the vllm engine to train.")
        if version <= self.version:
            raise EngineError(f"Version {version} is not above the present {self.version}; versions only grow.")
        await self._quiet()
        try:
            await self._reading.close()
            try:
                await self._load(weights, version)
            finally:
                self._reading.open()
            if caches == "recompute":
                self._salt = f"rolltree-{version}"
        finally:
            self._writing.open()

    @property
    def sleeps(self) -> bool:
        """See `Sleeper`."""
        return isinstance(self.backend, Sleeper) and self.backend.sleeps

    async def sleep(self) -> None:
        """See `Sleeper`."""
        if isinstance(self.backend, Sleeper):
            await self.pause()
            await self.backend.sleep()

    async def wake(self) -> None:
        """See `Sleeper`."""
        if isinstance(self.backend, Sleeper):
            await self.backend.wake()
            await self.resume()

    async def close(self) -> None:
        """End every run with what it has and release the foreign engine."""
        if self._closed:
            return
        self._closed = True
        for _, run in list(self._tasks.values()):
            run.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.backend.close()

    def at_work(self) -> int | None:
        """Tokens its runs have, and runs there were; None while there is nothing to do."""
        if self._pauses or not self._tasks:
            return None
        return hash((self._submitted, *(len(run.written) for run in self.in_flight)))

    def doing(self) -> str:
        """What it is at, for people."""
        return f"{self._name} has {len(self.in_flight)} requests in flight and sends no token"

    async def _load(self, weights: Any, version: int) -> None:
        try:
            await self.backend.load(weights, version)
        except BrokenError as broken:
            # Not tried again: nobody knows which weights it has, and it may be reading them still.
            raise EngineError(f"{self._name} broke while it was to take version {version}: {broken}") from broken

    async def _quiet(self) -> None:
        """Close the gate and wait until all calls have ended; whoever is cancelled here leaves it as it was."""
        closing = asyncio.ensure_future(self._writing.close())
        try:
            await asyncio.sleep(0)
            for writer, _ in list(self._tasks.values()):
                writer.interrupt()
            await asyncio.shield(closing)
        except BaseException:
            if closing.cancel():
                await asyncio.gather(closing, return_exceptions=True)
            elif not closing.cancelled() and closing.exception() is None:
                self._writing.open()
            raise

    async def _read(self, ids: list[int], start: int, alternatives: int) -> SegmentRead:
        failed = 0
        while True:
            try:
                return await self.backend.read(ids, start, alternatives)
            except EngineError:
                raise
            except BrokenError as broken:
                failed += 1
                if failed >= self._patience.tries:
                    raise EngineError(f"{self._name} failed {failed} times in a row: {broken}") from broken
                await asyncio.sleep(max(broken.after, self._patience.wait(failed)))
            except Exception as error:  # an answer in a form nobody foresaw
                raise EngineError(f"{self._name} failed: {type(error).__name__}: {error}") from error

    def _wanted(self, want: frozenset[str]) -> tuple[int, bool]:
        """How many alternatives are wanted and whether entropy is; raises on what cannot be had."""
        top, entropy = 0, False
        for name in want:
            head, _, count = name.partition(":")
            need = "entropy:full" if name == "entropy" else name
            if self.capabilities.lacking(frozenset({need})) or (head == "top" and not count.isdigit()):
                can = ", ".join(sorted(self.capabilities.features)) or "nothing"
                raise EngineError(
                    f"{self._name} cannot give {name!r} (it offers {can}, at most {self.capabilities.max_top} "
                    "alternatives); use the local engine, or ask for less."
                )
            entropy = entropy or head == "entropy"
            top = max(top, int(count)) if head == "top" else top
        return top, entropy

    def _open(self) -> None:
        if self._closed:
            raise EngineError("The engine is closed; make a new one.")

    def _forget(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]

    @property
    def _name(self) -> str:
        return self.backend.name


def _capabilities(backend: Backend) -> Capabilities:
    reach = backend.reach
    features: set[str] = set(_DOES)
    if reach.entropy or (reach.whole and not reach.of_sampling):
        features.add("entropy:full")
    if reach.alternatives:
        features.add("top")
    if reach.scores:
        features.add("score")
    if reach.updates:
        features.add("update")
    return Capabilities(frozenset(features), reach.context, min(reach.alternatives, reach.vocab))
