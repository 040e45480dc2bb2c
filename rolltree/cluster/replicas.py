"""The engines of a pool: started, replaced, let go, and kept under one version of the weights and one pause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from rolltree.cluster.errors import LostError
from rolltree.cluster.host import EngineHost
from rolltree.cluster.member import Member
from rolltree.cluster.wire import Described, News, Remote, Transport
from rolltree.engine.protocol import Caches, Capabilities, Codec, EngineError
from rolltree.engine.run import carried
from rolltree.errors import RolltreeError

_TRIES = 3
"""Starts that may fail in a row before a place stays empty (until an engine is lost or asked for again)."""


class Replicas:
    """Keeps `wanted` engines at work; `make`, as the transport shares it, is what a process makes its engine with."""

    def __init__(self, transport: Transport, make: Any, wanted: int, latency: float) -> None:
        self.wanted = wanted
        self.members: list[Member] = []
        self.leaving: list[Member] = []
        """Let go, but not done with handing over."""
        self.failed_starts = 0
        self.joined: Callable[[], None] = lambda: None
        self.hear: Callable[[Member, Sequence[News]], None] = lambda member, news: None
        self.lose: Callable[[Member, Exception], None] = lambda member, error: None
        self.hopeless: Callable[[Exception], None] = lambda error: None
        """Called when nobody is left and nobody can be started."""
        self.trouble: Exception | None = None
        self._transport = transport
        self._make, self._latency = make, latency
        self._starts: set[asyncio.Task[None]] = set()
        self._described: Described | None = None
        self._weights: tuple[Any, int] | None = None
        self._version = 0
        self._paused = False
        self._change = asyncio.Lock()
        """Held while weights or the pause change, and while somebody joins: nobody joins between the two."""

    # -- what the engines are --------------------------------------------------------------------------------------

    @property
    def described(self) -> Described:
        """What the engines said of themselves when the first of them opened."""
        if self._described is None:
            raise EngineError("no engine of the pool has opened yet")
        return self._described

    @property
    def codec(self) -> Codec:
        """Their tokenizer."""
        return self.described.codec

    @property
    def context(self) -> int:
        """Their longest context."""
        return self.capabilities.max_context

    @property
    def capabilities(self) -> Capabilities:
        """What each of them can do."""
        return self.described.capabilities

    @property
    def offset(self) -> bool:
        """Whether they can go on in the middle of a stream of randomness."""
        return "offset" in self.capabilities.features

    @property
    def version(self) -> int:
        """The version that all of them write under."""
        return self._version

    @property
    def starting(self) -> int:
        """Engines on their way."""
        return sum(not start.done() for start in self._starts)

    # -- hiring and firing -----------------------------------------------------------------------------------------

    def recruit(self) -> None:
        """Start as many engines as are missing."""
        for _ in range(self.wanted - len(self.members) - self.starting):
            start = asyncio.ensure_future(self._start())
            self._starts.add(start)
            start.add_done_callback(self._starts.discard)

    async def fill(self) -> None:
        """Start what is missing, and wait until all have joined or failed."""
        self.recruit()
        if self._starts:
            await asyncio.wait(self._starts)

    def lose_member(self, member: Member) -> bool:
        """Part with an engine that is gone and start another; False if it was known."""
        if member in self.members:
            self.members.remove(member)
        elif member in self.leaving:
            self.leaving.remove(member)
        else:
            return False
        member.kill()
        self.recruit()
        return True

    def retire(self, member: Member) -> None:
        """Give an engine nothing more."""
        self.members.remove(member)
        self.leaving.append(member)

    async def part(self, member: Member) -> None:
        """Close an engine that was let go, unless it went by itself."""
        if member in self.leaving:
            self.leaving.remove(member)
            await self._close(member, 5.0)

    async def close(self, grace: float) -> None:
        """Let everybody go."""
        self.wanted = 0
        for start in tuple(self._starts):
            start.cancel()
        everybody, self.members, self.leaving = [*self.members, *self.leaving], [], []
        await asyncio.gather(*(self._close(member, grace) for member in everybody))

    # -- one version, one pause ------------------------------------------------------------------------------------

    async def pause(self) -> None:
        """Have all of them stop making tokens."""
        async with self._change:
            self._paused = True
            await self._tell_all("pause")

    async def resume(self) -> None:
        """Have all of them go on."""
        async with self._change:
            self._paused = False
            await self._tell_all("resume")

    async def update(self, weights: Any, version: int, caches: Caches) -> None:
        """Give all of them new weights in one cut: nobody writes under the new version while another has the old."""
        shared = await asyncio.to_thread(self._transport.share, weights)
        async with self._change:
            if version <= self._version:
                raise EngineError(f"Version {version} is not above the present {self._version}; versions only grow.")
            if not self._paused:
                await self._tell_all("pause")
            before, self._weights = self._weights, (shared, version)
            refusals = await self._all("update", shared, version, caches)
            nobody = bool(refusals) and refusals.keys() >= {*self.members}
            if nobody:
                self._weights = before
            else:
                self._version = version
            for member, error in refusals.items():
                # One that cannot follow the others is of no use, and one that broke may have taken half of them.
                if not nobody or not isinstance(error, RolltreeError):
                    self.lose(member, error)
            if not self._paused:
                await self._tell_all("resume")
        if nobody:
            error = next(iter(refusals.values()))
            raise (
                error
                if isinstance(error, RolltreeError)
                else EngineError(f"no engine of the pool could take the new weights: {error_line(error)}")
            ) from error

    async def any(self, method: str) -> Any:
        """The answer of whoever is there."""
        while self.members:
            member = self.members[0]
            try:
                return await member.remote.call(method)
            except LostError as error:
                self.lose(member, error)
        raise EngineError("no engine of the pool is at work now; ask again once one has been replaced")

    # -- inside ----------------------------------------------------------------------------------------------------

    async def _tell_all(self, method: str) -> None:
        """Tell everybody; those that break at it are replaced."""
        for member, error in (await self._all(method)).items():
            if not isinstance(error, RolltreeError):
                self.lose(member, error)

    async def _all(self, method: str, *args: Any) -> dict[Member, Exception]:
        """Ask everybody at once; those lost are replaced, what the others refuse or break at is returned."""
        members = [*self.members, *self.leaving]
        answers = await asyncio.gather(*(m.remote.call(method, *args) for m in members), return_exceptions=True)
        refusals: dict[Member, Exception] = {}
        for member, answer in zip(members, answers, strict=True):
            if isinstance(answer, LostError):
                self.lose(member, answer)
            elif isinstance(answer, BaseException):
                refusals[member] = carried(answer)
        return refusals

    async def _start(self) -> None:
        for tries in range(1, _TRIES + 1):
            remote = self._transport.spawn(EngineHost, self._make, self._latency)
            try:
                described: Described = await remote.call("open")
                async with self._change:
                    await self._join(remote, described)
            except asyncio.CancelledError:
                remote.kill()
                raise
            except Exception as error:  # whatever it is, it happens in the engine's own process
                remote.kill()
                self.failed_starts += 1
                self.trouble = error
                if isinstance(error, RolltreeError):
                    break  # bad input: it would only repeat itself
                await asyncio.sleep(0.05 * 2**tries)
            else:
                return
        if not self.members and self.starting == 1 and self.trouble is not None:  # this one was the last
            self.hopeless(self.trouble)

    async def _join(self, remote: Remote, described: Described) -> None:
        if len(self.members) >= self.wanted:
            remote.kill()
            return
        if self._described is None:
            self._described, self._version = described, described.version
        if self._weights is not None:
            weights, version = self._weights
            await remote.call("update", weights, version, "recompute")
        if self._paused:
            await remote.call("pause")
        self.members.append(Member(remote, described, self.hear, self.lose))
        self.joined()

    async def _close(self, member: Member, grace: float) -> None:
        try:
            async with asyncio.timeout(grace):
                await member.remote.call("close")
        except (LostError, TimeoutError):
            pass
        finally:
            member.kill()


def error_line(error: Exception) -> str:
    """An exception as one line."""
    first = str(error).strip().splitlines()[0] if str(error).strip() else ""
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
