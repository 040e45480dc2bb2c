"""The pool at work, in an event loop of its own: who works on what, and what becomes of it when an engine goes.

Each job is in one engine at a time. When that one dies, what has arrived of the job is kept, and the rest is asked of
another engine; word from an engine that was given up is not heard any more. So every token a caller sees was counted
once, by the engine whose word arrived.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rolltree.cluster.elastic import Elastic
from rolltree.cluster.errors import ClusterError
from rolltree.cluster.handover import Handovers
from rolltree.cluster.jobs import Job, RemoteScoreJob, SampleJob
from rolltree.cluster.member import Member
from rolltree.cluster.replicas import Replicas, error_line
from rolltree.cluster.resume import ending, straddling
from rolltree.cluster.wire import (
    Answer,
    EndMessage,
    Failed,
    Follow,
    Lives,
    News,
    PartMessage,
    Spared,
    StopMessage,
    Warned,
)
from rolltree.engine.protocol import EngineError, Sample, Scored
from rolltree.engine.route import Router
from rolltree.engine.run import Watchdog
from rolltree.engine.samples import nothing
from rolltree.tree.node import Array, Finish

LOG = logging.getLogger("rolltree.cluster")
UNSEEN = 0.1
"""What the death of an engine counts that a request had been sent to and that had not said it has it."""
_GRACE = 5.0
"""Seconds that engines are given to hand over what exists when the pool closes."""


@dataclass(frozen=True, slots=True)
class Health:
    """How a pool stands."""

    engines: int
    starting: int
    wanted: int
    in_flight: int
    lost: int
    """Engines that died or could not be reached, so far."""
    failed_starts: int
    reissued: int
    """Times a request or score was asked again because its engine was lost."""
    moved: int
    """Times a request was handed over because its engine was let go, or because another would begin it sooner."""
    pids: tuple[int, ...]
    loads: tuple[int, ...]
    """Requests in each engine."""
    handed_prefixes: int = 0
    """Texts whose keys and values went from one engine to another."""
    handed_tokens: int = 0
    """Tokens of them that the other did not have."""
    handed_bytes: int = 0
    """What they were as they travelled."""
    spared: int = 0
    """Of these tokens, those that a request has found, once each: at least so many were not read again."""
    not_handed: Mapping[str, int] = field(default_factory=dict[str, int])
    """Hand-overs that brought nothing, by why; their prefixes are read again."""

    @property
    def numbers(self) -> dict[str, float]:
        """By the names of metrics."""
        told = {
            "budget/engines": self.engines, "budget/moved": self.moved, "budget/handed_prefixes": self.handed_prefixes,
            "budget/handed_tokens": self.handed_tokens, "budget/spared": self.spared,
        }  # fmt: skip
        told |= {f"budget/not_handed/{why}": count for why, count in self.not_handed.items()}
        return {name: float(value) for name, value in told.items()}


class CrashError(RuntimeError):
    """An engine raised something that is no EngineError: asking again may help."""


class Hub:
    """Routes jobs to the engines of a replicas and sees them through. Lives in one event loop; not thread-safe."""

    def __init__(self, replicas: Replicas, router: Router[Member], lives: int, handover: float = 0.0) -> None:
        self.replicas = replicas
        self.handovers = Handovers(replicas, router, self._place, handover)
        self.numbers = itertools.count()
        self._router = router
        self._lives = lives
        self._waiting: list[Job] = []
        self._lost = self._reissued = self._moved = 0
        self._closed = False
        self._levelling = asyncio.Lock()
        self._resizing = asyncio.Lock()
        """Held from a decision on a size until it stands: another one would decide on engines that come or go."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.watchdog = Watchdog(self)
        """Names a pool in which requests wait and nobody is there to take them."""
        replicas.joined, replicas.hear, replicas.lose, replicas.hopeless = (
            self._joined,
            self.hear,
            self.lose,
            self._hopeless,
        )

    @property
    def health(self) -> Health:
        """How it stands."""
        members = tuple(self.replicas.members)
        flying = len(self._waiting) + len(self.handovers.held)
        flying += sum(len(m.jobs) for m in (*members, *self.replicas.leaving))
        handed = self.handovers.counts
        return Health(
            len(members),
            self.replicas.starting,
            self.replicas.wanted,
            flying,
            self._lost,
            self.replicas.failed_starts,
            self._reissued,
            self._moved,
            tuple(m.pid for m in members),
            tuple(len(m.jobs) for m in members),
            handed.prefixes,
            handed.tokens,
            handed.nbytes,
            handed.spared,
            dict(handed.failed),
        )

    # -- from callers ----------------------------------------------------------------------------------------------

    def accept(self, jobs: Sequence[Job]) -> None:
        """Begin with jobs, in order."""
        for job in jobs:
            self._place(job)

    def stop(self, job: SampleJob, finish: Finish) -> None:
        """End a job with what exists."""
        if job.stop is not None:
            return
        job.stop = finish
        if (member := self._holder(job)) is not None:
            member.tell(StopMessage(job.number, finish))
        elif job in self._waiting:
            self._waiting.remove(job)
            job.conclude(finish)
        elif self.handovers.release(job):
            job.conclude(finish)

    def follow(self, job: SampleJob) -> None:
        """Report increments of a job."""
        if (member := self._holder(job)) is not None:
            member.tell(Follow(job.number))

    async def score(self, tokens: Array, start: int, want: frozenset[str]) -> Scored:
        """Log-probs from any engine."""
        if self._closed:
            raise EngineError("The engine is closed; make a new one.")
        job = RemoteScoreJob(next(self.numbers), tokens, start, want, asyncio.get_running_loop().create_future())
        self._place(job)
        return await job.done

    async def resize(self, wanted: int) -> None:
        """Grow, and give new engines of what waits; or let the least busy go after they handed over what they did.

        One at a time: who asks meanwhile waits, and the size asked for last stands in the end.
        """
        async with self._resizing:
            if self._closed:
                return
            self.replicas.wanted = wanted
            surplus = max(0, len(self.replicas.members) - wanted)
            leaving = sorted(self.replicas.members, key=lambda m: len(m.jobs))[:surplus]
            for member in leaving:
                self.replicas.retire(member)
                self._router.forget(member)
            for member in leaving:
                for job in list(member.jobs.values()):
                    if isinstance(job, SampleJob) and job.stop is None:
                        job.moving = True
                        member.tell(StopMessage(job.number, "abort"))
            await asyncio.gather(*(self._let_go(member) for member in leaving))
            await self.replicas.fill()
            await self._level()

    def follow_load(self, rule: Elastic) -> None:
        """Grow and shrink by a rule from now on."""
        self._begin(self._follow_load(rule))

    async def _follow_load(self, rule: Elastic) -> None:
        while not self._closed:
            await asyncio.sleep(rule.every)
            wanted = rule.wanted(self.replicas.wanted, self.health.in_flight)
            if wanted != self.replicas.wanted and not self._closed:
                await self.resize(wanted)
                await asyncio.sleep(rule.cool)

    async def _let_go(self, member: Member) -> None:
        await self.handovers.leave(member)
        while member.jobs:
            await member.left.wait()
        await self.replicas.part(member)

    async def close(self) -> None:
        """End everything in flight with what exists and let the engines go."""
        if self._closed:
            return
        self._closed = True
        self.replicas.wanted = 0
        members = [*self.replicas.members, *self.replicas.leaving]
        waiting = [*self._waiting, *self.handovers.held]
        for job in [*waiting, *(job for member in members for job in member.jobs.values())]:
            if isinstance(job, SampleJob):
                self.stop(job, "abort")
            else:
                job.fail(EngineError("The engine was closed before it could score."))
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):  # a hung engine is not waited for
                for member in members:
                    while any(isinstance(job, SampleJob) for job in member.jobs.values()):
                        await member.left.wait()
        for job in [job for member in members for job in member.jobs.values()]:
            if isinstance(job, SampleJob):
                job.conclude(job.stop or "abort")
        await self.replicas.close(_GRACE)

    # -- from engines ----------------------------------------------------------------------------------------------

    def hear(self, member: Member, told: Sequence[News]) -> None:
        """Take what an engine says about the jobs it has."""
        for news in told:
            if isinstance(news, Lives | Warned):
                # In the pool's own process it was heard by itself.
                if isinstance(news, Warned) and member.pid != os.getpid():
                    LOG.warning("The engine in process %d: %s", member.pid, news.said)
                continue
            if isinstance(news, Spared):
                self.handovers.counts.spared += news.tokens
                continue
            job = member.jobs.get(news.job)
            match job, news:
                case SampleJob(), PartMessage(_, sample):
                    self._router.note(job.affinity, member)
                    self._grow(member, job, sample)
                case SampleJob(), EndMessage(_, sample):
                    self._end(member, job, sample)
                case RemoteScoreJob(), Answer(_, scored):
                    member.drop(job.number)
                    job.answer(scored)
                case SampleJob() | RemoteScoreJob(), Failed(_, why, final):
                    member.drop(job.number)
                    job.fail(EngineError(why) if final else CrashError(why))
                case _:
                    pass  # a job that has ended here or gone elsewhere: word that was already on its way

    def at_work(self) -> tuple[int, ...] | None:
        """How often engines came and went; None while no request waits for one."""
        return (self._lost, self.replicas.failed_starts) if self._waiting else None

    def doing(self) -> str:
        """What it is at, for people."""
        return (
            f"{len(self._waiting)} requests wait for an engine of the pool, and none is at work "
            f"({self.replicas.starting} are starting); the cluster may have no room for one"
        )

    def lose(self, member: Member, error: Exception) -> None:
        """An engine is gone: replace it, and ask others for the rest of what it was doing."""
        if not self.replicas.lose_member(member):
            return
        self._lost += 1
        self._router.forget(member)
        jobs = list(member.jobs.values())
        for job in jobs:
            # One that had not arrived yet is hardly to blame: whole nodes go, and take several engines with them.
            job.deaths += 1.0 if job.number in member.taken else UNSEEN
        member.drop(*member.jobs)
        for job in jobs:
            if isinstance(job, SampleJob) and self._over(job):
                continue
            if job.deaths >= self._lives:
                job.fail(
                    EngineError(
                        f"{job.deaths:.3g} engines died with this request in them, the last of: {error_line(error)}"
                    )
                )
                continue
            self._reissued += 1
            self._place(job)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _place(self, job: Job, to: Member | None = None) -> None:
        if self._closed:
            job.fail(EngineError("The engine is closed; make a new one."))
            return
        members = self.replicas.members
        if not members:
            self._waiting.append(job)
            self.watchdog.wake(asyncio.get_running_loop())
            self.replicas.recruit()
            return
        if to not in members:
            to = self._router.choose(job.affinity, {m: len(m.jobs) for m in members})
        member = to
        try:
            member.give(job, self.replicas.offset)
        except ClusterError as error:
            job.fail(EngineError(str(error)))
        except Exception as error:  # what it holds; those behind it are placed all the same
            job.fail(EngineError(f"a request cannot be sent to an engine's process: {error_line(error)}"))

    def _joined(self) -> None:
        waiting, self._waiting = self._waiting, []
        self.accept(waiting)
        self._begin(self._level())

    async def _level(self) -> None:
        """Have engines hand over what they have not begun and another would begin sooner; returns when they have."""
        async with self._levelling:
            await self.handovers.warm()
            moves = [] if "abort" not in self.replicas.capabilities.features else await self._uneven()
            for member, job in sorted(moves, key=lambda move: move[1].number):
                job.moving = True
                member.tell(StopMessage(job.number, "abort"))
            for member, job in moves:
                while job.moving and job.number in member.jobs:
                    await member.left.wait()

    async def _uneven(self) -> list[tuple[Member, SampleJob]]:
        """Requests that wait in one engine and should go to another."""
        members = [*self.replicas.members]
        if len(members) < 2 or not any(member.jobs for member in members):
            return []
        asked = await asyncio.gather(*(member.remote.call("waiting") for member in members), return_exceptions=True)
        waiting: dict[Member, list[SampleJob]] = {}
        for member, answer in zip(members, asked, strict=True):
            if isinstance(answer, Exception):
                self.lose(member, answer)
            elif not isinstance(answer, BaseException) and member in self.replicas.members:
                waiting[member] = self._movable(member, set(answer))
        return self._router.level(waiting, {member: len(member.jobs) for member in waiting}) if waiting else []

    def _movable(self, member: Member, waiting: set[int]) -> list[SampleJob]:
        """Those of an engine's jobs that it has not begun; the prefixes of all others are read there."""
        out: list[SampleJob] = []
        for job in member.jobs.values():
            if job.number not in waiting:
                self._router.note(job.affinity, member)
            elif isinstance(job, SampleJob) and job.stop is None and not job.moving:
                out.append(job)
        return out

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _hopeless(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, []
        for job in waiting:
            job.fail(EngineError(f"no engine of the pool is left and none could be started: {error_line(error)}"))

    def _holder(self, job: SampleJob) -> Member | None:
        return next((m for m in (*self.replicas.members, *self.replicas.leaving) if job.number in m.jobs), None)

    def _grow(self, member: Member, job: SampleJob, part: Sample) -> None:
        found = self._straddles(job, part)
        part = job.take(part, None if found is None else found[0])
        job.tell(part)
        if found is not None:
            member.tell(StopMessage(job.number, "abort"))
            member.drop(job.number)
            self._conclude(job, "stop", found[1])

    def _end(self, member: Member, job: SampleJob, last: Sample) -> None:
        member.drop(job.number)
        if len(last.actions):
            self._router.note(job.affinity, member)
        found = self._straddles(job, last)
        if found is not None:
            job.tell(job.take(last, found[0]))
            self._conclude(job, "stop", found[1])
        elif job.moving and job.stop is None and last.finish == "abort":
            job.tell(job.take(last))
            if not self._over(job):
                self._moved += 1
                if not self.handovers.holds(job, member):
                    self._place(job)
        else:
            finish = last.finish
            if finish == "abort" and job.stop is not None:
                finish = job.stop
            job.take(last)
            job.conclude(finish, last.stopped_by, last)

    def _straddles(self, job: SampleJob, part: Sample) -> tuple[int, str] | None:
        """How many tokens of a part stand, where a stop string that an earlier engine began is complete in it."""
        stops = job.request.sampling.stop
        if not job.boundary or max(map(len, stops), default=0) < 2 or not len(part.actions):
            return None
        made = np.append(job.made, part.actions)
        found = straddling(stops, self.replicas.codec, made, job.boundary, job.count)
        return None if found is None else (found[0] - job.count, found[1])

    def _over(self, job: SampleJob) -> bool:
        """Whether nothing more is to be written: the caller stopped it, or its last token had arrived."""
        if job.stop is not None:
            job.conclude(job.stop)
            return True
        over = ending(job.request, self.replicas.codec, job.made, self.replicas.context)
        if over is not None:
            self._conclude(job, *over)
        return over is not None

    def _conclude(self, job: SampleJob, finish: Finish, stopped_by: str) -> None:
        """End a job whose engine did not; where its last hidden state is wanted another engine reads it."""
        if "hidden" not in job.request.want:
            job.conclude(finish, stopped_by)
            return

        async def read() -> None:
            tokens = np.append(job.request.prefix, job.made)
            try:
                scored = await self.score(tokens, len(tokens) - 1, frozenset({"hidden"}))
            except Exception as error:  # the caller hears it
                job.fail(error)
                return
            last = job.take(replace(nothing(finish), hidden=scored.hidden))
            job.conclude(finish, stopped_by, last)

        self._begin(read())
