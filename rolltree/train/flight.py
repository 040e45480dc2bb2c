"""Rollouts in flight: the executor that carries out a schedule on a real engine, in an event loop.

It grows, stops and writes on what the scheduler names and reports what came of it. Training and publishing are the
loop's: it awaits a `batch`, trains it while rollouts go on, and awaits `publication`. Nothing starts between a
publication and the next `begin`, so evaluations and checkpoints find under way only what could not be stopped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from rolltree.control.ledger import Budget
from rolltree.control.schedule import Group, Rollout, Schedule, Scheduler
from rolltree.engine.protocol import Engine, Sampling
from rolltree.filter.groups import drop
from rolltree.generate.hand import Hand
from rolltree.generate.patience import Patience
from rolltree.generate.random import Stream, mix
from rolltree.generate.runner import check_item
from rolltree.generate.setting import Setting
from rolltree.recipe.recipe import Parts
from rolltree.task.protocol import Item, Task
from rolltree.train.config import TrainConfig, TrainError
from rolltree.train.ways import Plot, Way
from rolltree.tree import Forest, Tree

GIVE_UP = 32
"""Groups in a row lost to failures after which a run ends: what they need is broken for good."""

Supply = Callable[[], tuple[int, Item]]
"""The next item of the run's stream and its place in it."""


@dataclass(slots=True, eq=False)
class Flight:
    """One run's rollouts. `size` rollouts make a group, `config.prompts` groups a batch."""

    parts: Parts
    engine: Engine
    task: Task
    config: TrainConfig
    schedule: Schedule
    way: Way
    size: int
    supply: Supply
    scheduler: Scheduler = field(init=False)
    budget: Budget = field(default_factory=partial(Budget, name="rollouts"))
    tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict[int, "asyncio.Task[None]"])
    """Rollouts being grown."""
    due: dict[int, Rollout] = field(default_factory=dict[int, Rollout])
    """Rollouts to be grown from the next `begin` on."""
    names: list[str] = field(default_factory=list[str])
    """Trees of the latest wave, so that two of one name get different streams."""
    wave: int = -1
    began: float = field(default_factory=time.monotonic)
    busy: float = 0.0
    """Seconds in which some rollout was grown."""
    settled: list[Group] = field(default_factory=list[Group])
    """Dropped groups that were not handed over yet."""
    told: Callable[[Group], None] = lambda _: None
    """Told of every group that is settled."""
    _hand: Hand | None = None
    _awake: bool = False
    _resting: bool = False
    _batch: list[Group] | None = None
    _published: bool = False
    _error: Exception | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _since: float = 0.0
    _lost: int = 0
    _stopping: set[int] = field(default_factory=set[int])
    _reports: int = 0
    """Of rollouts that were to be stopped before they began; not made yet."""

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(
            self.schedule, self, self._fresh, self.config.prompts, self.size, self.clock, self._accepts, self._settled
        )

    @property
    def limit(self) -> int:
        """Most policy tokens per path."""
        return self.config.max_tokens or self.task.max_tokens

    def clock(self) -> float:
        """Seconds since the run began; the one clock of all trees."""
        return time.monotonic() - self.began

    def busy_now(self) -> float:
        """Seconds so far in which some rollout was grown."""
        return self.busy + (time.monotonic() - self._since if self.tasks else 0.0)

    # -- what the loop asks for ------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Go on: grow what is due, and what the scheduler starts now that the weights are published."""
        self._awake = True
        due, self.due = self.due, {}
        for rollout in due.values():
            self._launch(rollout)
        if self.scheduler.phase == "publishing":
            self._published = False
            self.scheduler.published()
        else:
            self.scheduler.pump()

    async def batch(self) -> list[Group]:
        """The groups of the next update, when nobody writes in their trees any more."""
        await self._until(lambda: self._batch is not None)
        groups, self._batch = self._batch or [], None
        await self._until(lambda: not any(map(self._grows, groups)))
        for group in groups:
            self.way.ripe(group.item, group.members)
        return groups

    def dropped(self) -> list[Tree]:
        """Trees dropped since the last call, with the reason on their leaves, as soon as nobody writes in them."""
        there = [group for group in self.settled if not self._grows(group)]
        self.settled = [group for group in self.settled if self._grows(group)]
        out: list[Tree] = []
        for group in there:
            plot: Plot = group.item
            self.way.ripe(plot, [r for r in group.members if r.fate != group.fate])
            why = group.fate.removeprefix("dropped: ")
            drop(plot.tree, (self._refusal(plot.tree) or why) if why == "filter" else why)
            out += [plot.tree, *plot.lost]
        return out

    async def trained(self) -> None:
        """The batch was trained: returns when new weights may be handed to the engine."""
        self._awake = self.schedule.resume.update == "run on"
        self.scheduler.trained()
        await self._until(lambda: self._published)
        self._awake = False

    async def rest(self) -> None:
        """Stop all that can be cut, so that what stands in the trees is all there is; `begin` goes on."""
        self._resting = True
        try:
            for id, task in self.tasks.items():
                rollout = self.scheduler.running[id]
                if self.way.cuttable or rollout.fate:
                    self._stop(id, task)
            await self._until(lambda: not self.tasks or not (self.way.cuttable or self._leaving()))
        finally:
            self._resting = False

    async def close(self) -> None:
        """End the run: whatever is not settled is carried. Every rollout has one fate then."""
        self._awake = False
        self.due.clear()
        tasks = list(self.tasks.values())
        self.scheduler.close()
        for id, task in self.tasks.items():
            self._stop(id, task)
        if tasks:
            await asyncio.wait(tasks)
        if self._error is None:
            self.scheduler.check()

    # -- what the scheduler asks for -------------------------------------------------------------------------------

    def start(self, rollout: Rollout) -> None:
        """Grow a rollout now, or when the loop goes on."""
        if self._awake:
            self._launch(rollout)
        else:
            self.due[rollout.id] = rollout

    def abort(self, rollouts: Sequence[Rollout]) -> None:
        """Stop rollouts, or let them finish where they cannot be cut and are still wanted."""
        for rollout in rollouts:
            if self.due.pop(rollout.id, None) is not None:
                self._reports += 1
                asyncio.get_running_loop().call_soon(self._report_later, rollout)
            elif (task := self.tasks.get(rollout.id)) is not None and (self.way.cuttable or rollout.fate):
                self._stop(rollout.id, task)

    def train(self, batch: Sequence[Group]) -> None:
        """The loop is waiting for it."""
        self._batch = list(batch)
        self._news.set()

    def publish(self, version: int) -> None:
        """The loop is waiting for it."""
        self._published = True
        self._news.set()

    # -- inside ----------------------------------------------------------------------------------------------------

    def hand(self, wave: int) -> Hand:
        """What grows the groups of one batch's worth: streams are those of the step that would grow them in sync."""
        stream = Stream(mix(mix(self.config.seed, "step", wave + 1), "round", 0))
        setting = Setting(
            self.engine, self.task, Forest(), stream, self.clock, Patience(),
            Sampling(temperature=self.config.temperature), self.limit,
        )  # fmt: skip
        return Hand(setting, self.budget)

    def plot(self, place: int, item: Item, name: str, hand: Hand) -> Plot:
        """A prompt's tree, bare."""
        ids = np.asarray(self.engine.codec.encode(item.prompt), np.int32)
        tree = Tree(name, ids, task=self.task.name, item=item.id)
        hand.setting.items[name] = item
        return Plot(place, item, tree, hand.on(tree))

    def _fresh(self, number: int) -> Plot:
        place, item = self.supply()
        check_item(item, self.engine)
        wave = number // self.config.prompts
        if self._hand is None or wave != self.wave:
            self.names = self.names if wave == self.wave else []
            self.wave, self._hand = wave, self.hand(wave)
        name, count = item.id, 1
        while name in self.names:
            count += 1
            name = f"{item.id}#{count}"
        self.names.append(name)
        return self.plot(place, item, name, self._hand)

    def _launch(self, rollout: Rollout) -> None:
        if self._error is not None:
            return  # the run is at its end; the loop is about to hear of it
        if not self.tasks:
            self._since = time.monotonic()
        self.way.ready(rollout.group.item, rollout)
        task = asyncio.get_running_loop().create_task(self.way.play(rollout.group.item, rollout))
        self.tasks[rollout.id] = task
        task.add_done_callback(partial(self._over, rollout))

    def _stop(self, id: int, task: asyncio.Task[None]) -> None:
        # A second cancellation would tear it away from the engine before it has the tokens it made.
        if id not in self._stopping:
            self._stopping.add(id)
            task.cancel()

    def _over(self, rollout: Rollout, task: asyncio.Task[None]) -> None:
        del self.tasks[rollout.id]
        self._stopping.discard(rollout.id)
        if not self.tasks:
            self.busy += time.monotonic() - self._since
        if not task.cancelled() and (error := task.exception()) is not None:
            self.way.failed(rollout.group.item, rollout, error)
        self._report(rollout)

    def _report_later(self, rollout: Rollout) -> None:
        self._reports -= 1
        self._report(rollout)

    def _report(self, rollout: Rollout) -> None:
        try:
            made, finish, loose = self.way.stand(rollout.group.item, rollout)
            if self._resting and finish == "abort" and not rollout.fate:
                self.due[rollout.id] = rollout
            else:
                plot: Plot = rollout.group.item
                plot.reported[rollout.index] = rollout.tokens + sum(s.tokens for s in made)
                self.scheduler.ended(rollout, made, finish, loose=loose)
        except Exception as error:  # raised again where the loop waits
            self._error = error
        self._news.set()

    async def _until(self, there: Callable[[], bool]) -> None:
        while not there():
            if self._error is not None:
                raise self._error
            if not self.tasks and not self._resting and not self._reports:
                raise TrainError(
                    f"nothing is under way at version {self.scheduler.version} and no batch is complete: the schedule "
                    f"has stopped itself ({self.scheduler.load}); choose another one"
                )
            self._news.clear()
            await self._news.wait()

    def _grows(self, group: Group) -> bool:
        return any(r.id in self.tasks for r in group.members)

    def _leaving(self) -> bool:
        return any(self.scheduler.running[id].fate for id in self.tasks)

    def _accepts(self, group: Group) -> bool:
        return self._refusal(group.item.tree) is None

    def _refusal(self, tree: Tree) -> str | None:
        return next((why for f in self.parts.filters if (why := f(tree)) is not None), None)

    def _settled(self, group: Group) -> None:
        if group.fate.startswith("dropped"):
            self.settled.append(group)
        self._lost = self._lost + 1 if group.fate == "dropped: failures" else 0
        if self._lost >= GIVE_UP:
            events = [e.why for e in group.item.tree.events if e.kind == "fail"]
            self._error = TrainError(
                f"{self._lost} groups in a row failed ({events[-1] if events else 'for no recorded reason'}); "
                "mend it and go on with resume=True (--resume)"
            )
        self.told(group)
