"""The thread that computes. Orders come in through an inbox, results go out to each run's event loop once per step."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import torch

from rolltree.engine.local.core import Core, News
from rolltree.engine.local.run import LocalRun
from rolltree.engine.local.score import ScoreJob, score, take
from rolltree.engine.local.shortage import is_shortage, reads_less
from rolltree.engine.protocol import EngineError
from rolltree.engine.run import carried
from rolltree.engine.samples import nothing
from rolltree.policy.device import release_team

Order = Callable[[], News | None]

_LOGITS_AT_ONCE = 1 << 24
_UNSCORED = "The engine was closed before it could score."
PATIENCE = 0.005
"""Seconds without work after which the engine's threads are given back to whoever computes now."""
TURNS = 64
"""Turns of an event loop that whoever awaits a run gets to react in, in lockstep."""


class Worker:
    """Runs a core in a daemon thread: orders first, then one batch of scores, then one decoding step."""

    def __init__(self, core: Core, *, lockstep: bool = False) -> None:
        self.core = core
        self.lockstep = lockstep
        self.paused = False
        self.closed = False
        self._inbox: deque[Order] = deque()
        self._jobs: list[ScoreJob] = []
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def post(self, order: Order) -> None:
        """Have something done between two steps. Whoever asks has computed enough for now: its team ends."""
        release_team()
        self._inbox.append(order)
        self._wake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._main, name="rolltree-engine", daemon=True)
            self._thread.start()

    def submit(self, runs: list[LocalRun]) -> None:
        """Queue runs."""

        def order() -> News | None:
            if self.closed:
                return News([(run, nothing("abort"), None) for run in runs])
            self.core.queue.extend(runs)
            return None

        self.post(order)

    def score(self, job: ScoreJob) -> None:
        """Queue a score."""

        def order() -> None:
            if self.closed:
                _call(job.done.get_loop(), _fail, job.done, EngineError(_UNSCORED))
            else:
                self._jobs.append(job)

        self.post(order)

    async def ask(self, work: Callable[[], News | None]) -> None:
        """Have something done between two steps and wait for it; its exception is raised here."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def order() -> News | None:
            try:
                news = work()
            except BaseException as error:  # handed to whoever asked
                _call(loop, _fail, done, error)
                return None
            if news is not None:
                _publish(news)
            _call(loop, _settle, done, None)
            return None

        self.post(order)
        await done

    def close(self) -> News:
        """End every run with what it has; the thread leaves after this order."""
        self.closed = True
        for job in self._jobs:
            _call(job.done.get_loop(), _fail, job.done, EngineError(_UNSCORED))
        self._jobs.clear()
        return self.core.stop_all("abort")

    def shutdown(self) -> None:
        """Close and wait for the thread; a thread cut off inside torch would take the interpreter down with it."""
        thread = self._thread
        if thread is None:
            self.closed = True
        elif thread is not threading.current_thread():
            self.lockstep = False
            self.post(self.close)
            thread.join(timeout=60)

    def at(self) -> str:
        """Where its thread is, for people."""
        thread = self._thread
        frame = None if thread is None or thread.ident is None else sys._current_frames().get(thread.ident)  # pyright: ignore[reportPrivateUsage]
        if frame is None:
            return "and its thread is gone"
        last = traceback.extract_stack(frame)[-1]
        return f"and its thread is in {last.name} ({last.filename}, line {last.lineno})"

    @torch.inference_mode()
    def _main(self) -> None:
        while True:
            try:
                while self._turn():
                    pass
            except BaseException as error:  # somebody waits for every run; a thread that died would leave them waiting
                failure = EngineError(f"The engine failed with {type(error).__name__}: {error}")
                failure.__cause__ = error
                _publish(self.core.fail_all(failure))
            else:
                return

    def _turn(self) -> bool:
        """Orders, scores and one step; False once there will be no more."""
        self._wake.clear()
        while self._inbox:
            news = self._inbox.popleft()()
            if news is not None:
                _publish(news)
        if self.closed:
            self._thread = None
            return bool(self._inbox)
        if self._jobs:
            self._score()
        if self.core.busy and not self.paused:
            news = self.core.step()
            _publish(news)
            if self.lockstep and news.ended:
                self._let_react({run.loop for run, _, _ in news.ended})
        elif not self._jobs and not self._wake.wait(PATIENCE):
            release_team()
            self._wake.wait()
        return True

    def _let_react(self, loops: set[asyncio.AbstractEventLoop]) -> None:
        for loop in loops:
            heard = threading.Event()
            _call(loop, _count, loop, TURNS, heard)
            while not heard.wait(0.1) and self.lockstep and loop.is_running():
                pass

    def _score(self) -> None:
        jobs = take(self._jobs, self.core.limits.chunk)
        try:
            results = score(self.core.decoder, jobs, self.core.version, _LOGITS_AT_ONCE)
        except BaseException as error:  # as in a step, for the callers of this batch
            less = reads_less(self.core.limits) if is_shortage(error) and len(jobs) > 1 else None
            if less is not None:
                self.core.limits = less
                self._jobs = [*jobs, *self._jobs]
                return
            for job in jobs:
                failure = EngineError(f"The engine failed while scoring with {type(error).__name__}: {error}")
                _call(job.done.get_loop(), _fail, job.done, failure)
            return
        for job, result in zip(jobs, results, strict=True):
            _call(job.done.get_loop(), _settle, job.done, result)


def _publish(news: News) -> None:
    """Hand results to the event loops that wait for them, one call per loop."""
    calls: defaultdict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = defaultdict(list)
    for run, part in news.parts:
        calls[run.loop].append(lambda run=run, part=part: run.tell(part))
    for run, outcome, rest in news.ended:
        run.ended = True
        calls[run.loop].append(lambda run=run, outcome=outcome, rest=rest: run.end(outcome, rest))
    for loop, todo in calls.items():
        _call(loop, _all, todo)


def _count(loop: asyncio.AbstractEventLoop, turns: int, heard: threading.Event) -> None:
    """Set the event that many turns from now."""
    if turns:
        loop.call_soon(_count, loop, turns - 1, heard)
    else:
        heard.set()


def _all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(carried(error))


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: Any) -> None:
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        # The loop is closed: nobody is left to hear it.
        if not loop.is_closed():
            raise
