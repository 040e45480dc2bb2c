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

from rolltree.engine.local.admit import is_shortage, reads_less
from rolltree.engine.local.core import Core, News
from rolltree.engine.local.prefill import ScoreJob, score, take
from rolltree.engine.local.run import LocalRun
from rolltree.engine.local.turns import Turns, let_react
from rolltree.engine.protocol import EngineError
from rolltree.engine.run import carried
from rolltree.engine.samples import nothing
from rolltree.policy.device import release_team
from rolltree.tree.node import Finish

Order = Callable[[], News | None]

_LOGITS_AT_ONCE = 1 << 24
_UNSCORED = "The engine was closed before it could score."
PATIENCE = 0.005
"""Seconds without work after which the engine's threads are given back to whoever computes now."""


class Worker:
    """Runs a core in a daemon thread: orders first, then one batch of scores, then one decoding step."""

    def __init__(self, core: Core, *, turns: Turns | None = None) -> None:
        self.core = core
        self.turns = turns
        """Lockstep, shared with the other engines of the program; None = compute as soon as there is something."""
        self._place = 0 if turns is None else turns.join()
        self._ending = False
        self.paused = False
        self.closed = False
        self._inbox: deque[Order] = deque()
        self._stopping: deque[tuple[LocalRun, Finish]] = deque()
        self._jobs: list[ScoreJob] = []
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def post(self, order: Order) -> None:
        """Have something done between two steps. Whoever asks has computed enough for now: its team ends."""
        release_team()
        self._inbox.append(order)
        if self.turns is not None:
            self.turns.stir(self._place)
        self._wake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._main, name="rolltree-engine", daemon=True)
            self._thread.start()

    def submit(self, runs: list[LocalRun]) -> None:
        """Queue runs."""

        def order() -> News | None:
            if self.closed:
                return News([(run, nothing("abort"), None) for run in runs])
            self.core.submit(runs)
            return None

        self.post(order)

    def stop(self, run: LocalRun, finish: Finish) -> None:
        """End a run; all that are stopped before the next step end at once."""
        self._stopping.append((run, finish))
        self.post(self._stop)

    def _stop(self) -> News:
        ends = dict[LocalRun, Finish]()
        while self._stopping:
            run, finish = self._stopping.popleft()
            if not run.ended:
                ends.setdefault(run, finish)
        news = self.core.stop(ends) if ends else News()
        # The others are still to be queued by an order that waits behind this one, and in front of their own stop.
        ended = {run for run, *_ in news.ended}
        self._stopping.extend((run, finish) for run, finish in ends.items() if run not in ended)
        return news

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
            self._ending = True
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
        self._follow_orders()
        if not self._asked:
            self._learn()
            if self.turns is not None:
                self.turns.rest(self._place, lambda: not self._inbox)
            if self.closed:
                self._thread = None
                return bool(self._inbox)
            if not self._wake.wait(PATIENCE):
                release_team()
                self._wake.wait()
        elif self.turns is None:
            self._compute()
        else:
            self._compute_in_turn(self.turns)
        return True

    def _learn(self) -> None:
        """Train the drafter while there is nothing else to do; in lockstep to the end, so that a run repeats itself."""
        while not self.closed and (self.turns is not None or not self._inbox) and self.core.learn():
            pass

    @property
    def _asked(self) -> bool:
        return not self.closed and bool(self._jobs or (self.core.busy and not self.paused))

    @property
    def _going(self) -> bool:
        return not self._ending

    @property
    def _loops(self) -> set[asyncio.AbstractEventLoop]:
        """Of those who wait for something."""
        runs = (*self.core.queue, *self.core.batch.runs)
        return {job.done.get_loop() for job in self._jobs} | {run.loop for run in runs}

    def _follow_orders(self) -> None:
        while self._inbox:
            news = self._inbox.popleft()()
            if news is not None:
                _publish(news)

    def _compute(self) -> set[asyncio.AbstractEventLoop]:
        """Scores and one step; the event loops that heard of it."""
        heard = {job.done.get_loop() for job in self._jobs}
        if self._jobs:
            self._score()
        if self.core.busy and not self.paused:
            news = self.core.step()
            _publish(news)
            heard |= {run.loop for run, *_ in (*news.ended, *news.parts)}
        return heard

    def _compute_in_turn(self, turns: Turns) -> None:
        turns.take(self._place, lambda: let_react(self._loops, lambda: self._going), lambda: self._going)
        try:
            self._follow_orders()  # those that came while others computed
            if self._asked:
                let_react(self._compute(), lambda: self._going)
        finally:
            turns.give(self._place)

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
