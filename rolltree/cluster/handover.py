"""Prefixes go from engine to engine, so that whoever goes on with a text need not read it again.

An engine that leaves has ended its requests; they wait here, in no engine, until the keys and values of their texts
have arrived where they go on. What else it has read and may be asked for goes with them. An engine that is new is
given what most requests begin with. A hand-over that fails costs that the prefix is read again, and is counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from rolltree.cluster.errors import LostError
from rolltree.cluster.jobs import Job, SampleJob
from rolltree.cluster.member import Member
from rolltree.cluster.replicas import Replicas
from rolltree.engine.prefixes import Offered, Taken
from rolltree.engine.route import Router
from rolltree.tree.node import Array


class Place(Protocol):
    """Gives a job to an engine, if it can to this one."""

    def __call__(self, job: Job, to: Member | None = None) -> None:
        """Now."""
        ...


@dataclass(slots=True)
class Counts:
    """What hand-overs came to."""

    prefixes: int = 0
    tokens: int = 0
    nbytes: int = 0
    spared: int = 0
    failed: Counter[str] = field(default_factory=Counter[str])
    """Hand-overs that brought nothing, by why: what an engine refused, lost, late, or the name of an error."""


@dataclass(slots=True)
class _Held:
    """A job that has left one engine and is in no other yet."""

    job: SampleJob
    left: Member
    to: Member | None = None


@dataclass(slots=True)
class _Share:
    """What one engine gets of what another leaves."""

    jobs: list[SampleJob] = field(default_factory=list[SampleJob])
    names: list[str] = field(default_factory=list[str])


class Handovers:
    """The hand-overs of a pool. `seconds` is how long one may take; 0 = none, prefixes are read again."""

    def __init__(self, replicas: Replicas, router: Router[Member], place: Place, seconds: float) -> None:
        self.counts = Counts()
        self.seconds = seconds
        self._replicas, self._router, self._place = replicas, router, place
        self._held: dict[int, _Held] = {}
        self._warm: list[Member] = []
        """Engines that have been given what the others had."""

    # -- jobs between two engines ----------------------------------------------------------------------------------

    @property
    def held(self) -> list[SampleJob]:
        """Jobs that are in no engine now."""
        return [held.job for held in self._held.values()]

    def holds(self, job: SampleJob, leaving: Member) -> bool:
        """Keep a job that an engine has ended until its prefix has arrived elsewhere; False where it need not wait."""
        if not self.seconds or leaving not in self._replicas.leaving:
            return False
        self._held[job.number] = _Held(job, leaving)
        return True

    def release(self, job: SampleJob) -> bool:
        """A job is to go on nowhere; False if it is not here."""
        return self._held.pop(job.number, None) is not None

    # -- an engine leaves ------------------------------------------------------------------------------------------

    async def leave(self, leaving: Member) -> None:
        """Once an engine has ended its samples: move their prefixes, and what else it has read, to those that stay."""
        while any(isinstance(job, SampleJob) for job in leaving.jobs.values()):
            await leaving.left.wait()
        if not self.seconds:
            return
        jobs = sorted((h.job for h in self._held.values() if h.left is leaving), key=lambda job: job.number)
        try:
            async with asyncio.timeout(self.seconds):
                names: list[str] = await leaving.remote.call("known")
                shares = self._shares(jobs, names)
                await asyncio.gather(*(self._move(leaving, to, share) for to, share in shares.items()))
        except Exception as error:  # whatever it is, prefixes are read again
            self._failed(leaving, error)
        self._go_on(jobs)

    def _shares(self, jobs: Sequence[SampleJob], names: Sequence[str]) -> Mapping[Member, _Share]:
        """Who gets what: jobs as they are routed, and prefixes nobody is at work on as if a request of each came."""
        shares: dict[Member, _Share] = {}
        bound = Counter(held.to for held in self._held.values())
        loads = {member: len(member.jobs) + bound[member] for member in self._replicas.members}
        if not loads:
            return shares
        for job in jobs:
            to = self._router.choose(job.affinity, loads)
            self._held[job.number].to = to
            loads[to] += 1
            shares.setdefault(to, _Share()).jobs.append(job)
        of_jobs = {job.affinity for job in jobs}
        for name in names:
            shares.setdefault(self._router.choose(name, loads), _Share()).names.append(name)
        for mine in shares.values():
            # What is written on now comes first.
            mine.names.sort(key=lambda name: name not in of_jobs)
        return shares

    async def _move(self, leaving: Member, to: Member, share: _Share) -> None:
        texts = [np.append(job.request.prefix, job.made) for job in share.jobs]
        try:
            await self._give(leaving, [to], share.names, texts)
        finally:
            self._go_on(share.jobs)

    def _go_on(self, jobs: Sequence[SampleJob]) -> None:
        for job in jobs:
            if (held := self._held.pop(job.number, None)) is not None:
                self._place(job, held.to)

    # -- an engine is new ------------------------------------------------------------------------------------------

    async def warm(self) -> None:
        """Give engines that have joined what most requests of the others begin with."""
        members = [*self._replicas.members]
        givers = [member for member in members if member in self._warm and member.served]
        new = [member for member in members if member not in self._warm]
        self._warm = members
        if not self.seconds or not givers or not new:
            return
        try:
            async with asyncio.timeout(self.seconds):
                await asyncio.gather(*(self._give(giver, new, None, ()) for giver in givers))
        except TimeoutError as error:
            self.counts.failed[_why(error)] += 1

    # -- both ------------------------------------------------------------------------------------------------------

    async def _give(
        self, giver: Member, to: Sequence[Member], names: Sequence[str] | None, texts: Sequence[Array]
    ) -> None:
        """One hand-over. What travels goes from process to process; here only its size is known."""
        offered: Offered
        try:
            offered, blocks = await giver.remote.parted("export", names, texts)
        except Exception as error:  # prefixes are read again
            self._failed(giver, error)
            return
        if offered.tokens:
            await asyncio.gather(*(self._take(taker, offered, blocks) for taker in to))

    async def _take(self, taker: Member, offered: Offered, blocks: Any) -> None:
        try:
            taken: Taken = await taker.remote.call("take_over", blocks)
        except Exception as error:  # of the engine, or of the way there
            self._failed(taker, error)
            return
        if taken.refused:
            self.counts.failed[taken.refused] += 1
            return
        self.counts.prefixes += offered.prefixes
        self.counts.tokens += taken.tokens
        self.counts.nbytes += offered.nbytes

    def _failed(self, member: Member, error: Exception) -> None:
        self.counts.failed[_why(error)] += 1
        if isinstance(error, LostError):
            # Before its own listener hears it, an engine that leaves may be gone from the pool, and one that stays may
            # be given jobs.
            self._replicas.lose(member, error)


def _why(error: BaseException) -> str:
    if isinstance(error, LostError):
        return "lost"
    return "late" if isinstance(error, TimeoutError) else type(error).__name__
