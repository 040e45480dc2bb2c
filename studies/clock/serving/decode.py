"""Engines that decode requests: they take them over with their keys and values, or prefill them by themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from studies.clock.engine import SimEngine
from studies.clock.floor import Floor
from studies.clock.hardware import Hardware
from studies.clock.link import LLAMA_7B, RDMA, Cache, Link
from studies.clock.pool import Pool
from studies.clock.serving.prefixes import Prefixes
from studies.clock.serving.traffic import Ask


@dataclass(slots=True, eq=False)
class DecodePool:
    """A pool that may grow and shrink while requests are under way; none of them is ever lost."""

    floor: Floor[Ask]
    hardware: Hardware
    prefills: bool
    """Whether a request comes without keys and values."""
    link: Link = RDMA
    cache: Cache = LLAMA_7B
    contiguous: bool = True
    """Whether keys and values are handed over from one buffer, or block by block."""
    pool: Pool[Ask] = field(default_factory=Pool[Ask])
    handing: float = 0.0
    """Seconds of all transfers."""
    handed: int = 0
    moved: int = 0
    again: int = 0
    """Requests that began anew because what they had was lost."""
    _made: int = 0
    _prefixes: dict[int, Prefixes] = field(default_factory=dict[int, Prefixes])

    def grow(self, engines: int) -> list[SimEngine[Ask]]:
        """New engines, at work from now on: they take what waits first."""
        new: list[SimEngine[Ask]] = []
        for _ in range(engines):
            engine: SimEngine[Ask] = SimEngine(self._made, self.hardware, at=self.floor.time.now)
            self._made += 1
            self.pool.join(engine)
            new.append(engine)
        self._serve()
        return new

    def drain(self, engine: SimEngine[Ask]) -> None:
        """Give it nothing more; what it has ends there."""
        self.pool.leave(engine)

    def hand_over(self, engine: SimEngine[Ask]) -> None:
        """Take it out now: what it has goes on elsewhere with its keys and values."""
        for ask in self._taken(engine):
            ask.moved += 1
            self.moved += 1
            self.offer(ask, computed=True)

    def lose(self, engine: SimEngine[Ask]) -> None:
        """Take it out now: what it has begins anew elsewhere."""
        for ask in self._taken(engine):
            ask.left, ask.begun_again = ask.output, ask.begun_again + 1
            ask.made.clear()
            self.again += 1
            self.offer(ask)

    def stop(self, engine: SimEngine[Ask], seconds: float) -> None:
        """Let it do nothing for a while."""
        self.floor.touch(engine)
        engine.stall += seconds

    def offer(self, ask: Ask, computed: bool | None = None) -> None:
        """Seat a request on the engine with the fewest, or let it wait."""
        comes_with = not self.prefills if computed is None else computed
        engine = self.pool.free()
        if engine is None:
            self.pool.waiting.append(ask)
        elif comes_with:
            self._fetch(ask, engine)
        else:
            kept = self._prefixes.setdefault(engine.index, Prefixes())
            self._add(ask, engine, kept.fresh(ask) + sum(s.tokens for s in ask.made))

    def ended(self, engine: SimEngine[Ask]) -> None:
        """A sequence has left this engine."""
        if self._member(engine):
            self.pool.changed(engine)
            self._serve()

    def _serve(self) -> None:
        while self.pool.waiting and self.pool.free() is not None:
            ask = self.pool.waiting.popleft()
            # What was moved while all were full still has its keys and values.
            self.offer(ask, computed=True if ask.moved and ask.made else None)

    def _fetch(self, ask: Ask, engine: SimEngine[Ask]) -> None:
        """Reserve a slot and pull keys and values; decoding goes on meanwhile."""
        tokens = ask.context + sum(s.tokens for s in ask.made)
        seconds = (self.cache.together if self.contiguous else self.cache.by_blocks)(self.link, tokens)
        self.handing, self.handed = self.handing + seconds, self.handed + 1
        engine.held += 1
        self.pool.changed(engine)
        self.floor.time.at(self.floor.time.now + seconds, lambda: self._landed(ask, engine))

    def _landed(self, ask: Ask, engine: SimEngine[Ask]) -> None:
        engine.held -= 1
        if self._member(engine):
            self._add(ask, engine, 0)
        else:
            self.offer(ask, computed=True)

    def _add(self, ask: Ask, engine: SimEngine[Ask], prefill: int) -> None:
        self.floor.touch(engine)
        engine.add(ask, prefill)
        ask.first = min(ask.first, self.floor.time.now + engine.stall)
        self.pool.changed(engine)

    def _taken(self, engine: SimEngine[Ask]) -> list[Ask]:
        self.pool.leave(engine)
        self.floor.touch(engine)
        taken = list(engine.active.values())
        for ask in taken:
            engine.remove(ask)
        return taken

    def _member(self, engine: SimEngine[Ask]) -> bool:
        return engine in self.pool


def decode_pool(
    hardware: Hardware, engines: int, ended: Callable[[Ask], None], *, prefills: bool, link: Link = RDMA,
    contiguous: bool = True,
) -> DecodePool:  # fmt: skip
    """A pool on a clock of its own; `ended` hears of every request that has all its tokens."""

    def spoken(ask: Ask, engine: SimEngine[Ask]) -> None:
        ask.ended = floor.time.now
        pool.ended(engine)
        ended(ask)

    floor: Floor[Ask] = Floor(spoken)
    pool = DecodePool(floor, hardware, prefills, link, contiguous=contiguous)
    pool.grow(engines)
    return pool
