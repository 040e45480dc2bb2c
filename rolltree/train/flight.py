"""Rollouts in flight: the executor that carries out a schedule on a real engine, in an event loop.

It grows, stops and writes on what the scheduler names and reports what came of it. Which prompts come next, and how
many rollouts of each, the control's plans say: what a plan orders becomes a group of the scheduler or a further part of
one, and what came of it is delivered to the plan. Training and publishing are the loop's: it awaits a `batch`, trains
it while rollouts go on, and awaits `publication`. Nothing starts between a publication and the next `begin`, so
evaluations and checkpoints find under way only what could not be stopped.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, cast

from rolltree.control.following import Name
from rolltree.control.hints import solver
from rolltree.control.ledger import Budget
from rolltree.control.order import Delivery
from rolltree.control.plan import Step
from rolltree.control.schedule import Group, Offer, Rollout, Schedule, Scheduler
from rolltree.engine.protocol import Engine, Sampling
from rolltree.filter.groups import drop
from rolltree.generate.hand import Hand
from rolltree.generate.patience import Patience
from rolltree.generate.probed import InFlight, Observed
from rolltree.generate.random import Stream, mix
from rolltree.generate.runner import check_item
from rolltree.generate.setting import Setting
from rolltree.generate.strategy import TreeStrategy
from rolltree.recipe.recipe import Parts
from rolltree.task.protocol import Item, Task
from rolltree.train.collect import Cursor
from rolltree.train.config import TrainConfig, TrainError
from rolltree.train.gathering import MEASURED, Gathering, asked_task, names_of, ordered_item
from rolltree.train.steering import Steering
from rolltree.train.waves import Sheet, Waves
from rolltree.train.ways import Bed, Plot, Way
from rolltree.train.widths import Ordered, width_of
from rolltree.tree import Forest, Tree

GIVE_UP = 32
"""Groups in a row lost to failures after which a run ends: what they need is broken for good."""


class Lot(NamedTuple):
    """Orders of one prompt that become a group, or a further part of one."""

    sheet: Sheet
    indices: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Queue:
    """Groups that a round of a plan asks for."""

    lots: deque[Lot]
    together: bool
    """Whether groups are held until the plan has seen all of them: then either none of them begins or all do."""
    begun: bool = False


@dataclass(slots=True, eq=False)
class Sheetwork:
    """What the trees of a round share."""

    items: list[Item]
    """As the orders ask them."""
    names: list[str]
    hand: Hand
    strategy: TreeStrategy
    widths: dict[str, int | None]
    flights: dict[str, InFlight]


@dataclass(slots=True, eq=False)
class Flight:
    """One run's rollouts; `config.prompts` groups make a batch."""

    parts: Parts
    engine: Engine
    task: Task
    config: TrainConfig
    schedule: Schedule
    way: Way
    steering: Steering
    cursor: Cursor
    waves: Waves = field(init=False)
    scheduler: Scheduler = field(init=False)
    budget: Budget = field(default_factory=partial(Budget, name="rollouts"))
    tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict[int, "asyncio.Task[None]"])
    """Rollouts being grown."""
    due: dict[int, Rollout] = field(default_factory=dict[int, Rollout])
    """Rollouts to be grown from the next `begin` on."""
    queue: deque[Queue] = field(default_factory=deque[Queue])
    """What plans asked for and has not begun."""
    beds: dict[tuple[int, int], Group] = field(default_factory=dict[tuple[int, int], Group])
    """Groups that teach and are not settled, by wave and place."""
    began: float = field(default_factory=time.monotonic)
    busy: float = 0.0
    """Seconds in which some rollout was grown."""
    settled: list[Group] = field(default_factory=list[Group])
    """Dropped groups that were not handed over yet."""
    told: Callable[[Group], None] = lambda _: None
    """Told of every group that is settled."""
    _awake: bool = False
    _resting: bool = False
    _batch: list[Group] | None = None
    _published: bool = False
    _error: Exception | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _since: float = 0.0
    _lost: int = 0
    _stopping: set[int] = field(default_factory=set[int])
    _late: set[int] = field(default_factory=set[int])
    """Rollouts that were to be stopped before they began; not reported yet."""
    _orphans: list[Group] = field(default_factory=list[Group])
    """Groups that were given up before their plans knew what came of them."""
    _reading: set[asyncio.Task[None]] = field(default_factory=set["asyncio.Task[None]"])
    """Reading log-probs again in gathered trees."""
    _work: dict[tuple[int, Name], Sheetwork] = field(default_factory=dict[tuple[int, Name], Sheetwork])

    def __post_init__(self) -> None:
        self.waves = Waves(self.steering, self.cursor, self.config.prompts, self._plan)
        self.scheduler = Scheduler(
            self.schedule, self, self._fresh, self.config.prompts, self.clock, self._accepts, self._settled,
            self._pressing,
        )  # fmt: skip

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
        self._look_after()

    def want(self, groups: int) -> None:
        """So many make the next update, and are asked for at once from now on."""
        self.scheduler.batch = self.waves.prompts = groups

    async def batch(self) -> list[Group]:
        """The groups of the next update, when nobody writes in their trees any more."""
        await self._until(lambda: self._batch is not None)
        groups, self._batch = self._batch or [], None
        await self._until(lambda: not any(map(self._grows, groups)))
        return groups

    def dropped(self) -> list[Tree]:
        """Trees dropped since the last call, with the reason on their leaves, as soon as nobody writes in them."""
        there = [group for group in self.settled if not group.item.plots]
        self.settled = [group for group in self.settled if group.item.plots]
        out: list[Tree] = []
        for group in there:
            bed: Bed = group.item
            why = group.fate.removeprefix("dropped: ")
            for tree in bed.trees():
                drop(tree, (self._refusal(bed) or why) if why == "filter" else why)
            out += bed.trees()
        return out

    async def trained(self) -> None:
        """The batch was trained: returns when new weights may be handed to the engine."""
        self._awake = self.schedule.resume.update == "run on"
        self.scheduler.trained()
        await self._until(lambda: self._published and not self._reading)
        self._awake = False

    async def rest(self) -> None:
        """Stop all that can be cut, so that what stands in the trees is all there is; `begin` goes on."""
        self._resting = True
        try:
            for id, task in self.tasks.items():
                rollout = self.scheduler.running[id]
                if self.way.cuttable or rollout.fate:
                    self._stop(id, task)
            await self._until(lambda: self._at_rest)
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
        if tasks or self._reading:
            await asyncio.wait([*tasks, *self._reading])
        if self._error is None:
            self.scheduler.check()

    # -- what the scheduler asks for -------------------------------------------------------------------------------

    def start(self, rollout: Rollout) -> None:
        """Grow a rollout now, or when the loop goes on."""
        bed: Bed = rollout.group.item
        if bed.teaches:
            self.beds[bed.wave, bed.place] = rollout.group
        if self._awake:
            self._launch(rollout)
        else:
            self.due[rollout.id] = rollout

    def abort(self, rollouts: Sequence[Rollout]) -> None:
        """Stop rollouts, or let them finish where they cannot be cut and are still wanted."""
        for rollout in rollouts:
            if self.due.pop(rollout.id, None) is not None:
                self._late.add(rollout.id)
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

    def _plan(self, number: int, prompts: int) -> tuple[Step, Gathering]:
        """What the plan with this number may use: that of the step which would follow it without a schedule."""
        c, task = self.config, self.task
        gathering = Gathering(self.engine, task, self.budget, self.parts.filters, self.steering.history, number + 1)
        rng = Stream(mix(c.seed, "step", number + 1)).child("control").generator()
        width = width_of(self.parts.strategy) or 1
        return Step(
            number + 1, prompts, width, rng, self.cursor, self.steering.history, solver(task)
        ), gathering  # fmt: skip

    def plot(self, sheet: Sheet, index: int) -> Plot:
        """Where an order's rollouts grow: a bare tree in the streams of its wave and round."""
        work = self._work.get((sheet.wave.number, sheet.name)) or self._open(sheet)
        order, item, hand = sheet.orders[index], work.items[index], work.hand
        check_item(item, self.engine)
        tree, flight = sheet.wave.gathering.plant(order, item, work.names[index]), InFlight(order.probe)
        hand.setting.items[tree.id], work.widths[tree.id], work.flights[tree.id] = item, order.width, flight
        if order.limit is not None and order.limit < self.limit:
            hand = Hand(replace(hand.setting, limit=order.limit), self.budget)
        plain = order.width is None and order.probe is None
        strategy = cast(TreeStrategy, self.parts.strategy) if plain else work.strategy
        return Plot(sheet, index, tree, hand.on(tree), strategy, flight)

    def _open(self, sheet: Sheet) -> Sheetwork:
        number, name = sheet.wave.number, sheet.name
        setting = Setting(
            self.engine, asked_task(self.task, sheet.orders), Forest(),
            Stream(mix(mix(self.config.seed, "step", number + 1), "round", *name)), self.clock, Patience(),
            Sampling(temperature=self.config.temperature), self.limit,
        )  # fmt: skip
        widths: dict[str, int | None] = {}
        flights: dict[str, InFlight] = {}
        strategy = Observed(Ordered(cast(TreeStrategy, self.parts.strategy), widths), flights)
        items = [ordered_item(order, i) for i, order in enumerate(sheet.orders)]
        made = Sheetwork(items, names_of(items), Hand(setting, self.budget), strategy, widths, flights)
        self._work[number, name] = made
        return made

    # -- what plans ask for ----------------------------------------------------------------------------------------

    def _fresh(self, number: int) -> Offer | None:
        if not self.queue:
            if self.waves.filling:
                return None
            self._ask(self.waves.begin())
        queue = self.queue[0]
        waits = queue.together and not queue.begun and bool(self.scheduler.running)
        if waits and self.schedule.admission.room(self.scheduler.load) < len(queue.lots):
            return None
        queue.begun = True
        sheet, indices = queue.lots.popleft()
        if not queue.lots:
            self.queue.popleft()
        first = sheet.orders[indices[0]]
        bed = Bed(sheet.wave.number, first.prompt.place, first.teaches)
        for part, i in enumerate(indices):
            bed.plots[part] = self.plot(sheet, i)
        return Offer(bed, [self.way.size(sheet.orders[i]) for i in indices], open=True)

    def _pressing(self) -> bool:
        return bool(self.queue) and self.queue[0].together and self.queue[0].begun

    def ask(self, sheet: Sheet, indices: Iterable[int]) -> None:
        """Let these orders of a round wait for their turn, in groups of one prompt each."""
        lots: dict[int, list[int]] = {}
        for i in indices:
            order = sheet.orders[i]
            lots.setdefault(order.prompt.place if order.teaches else -1 - i, []).append(i)
        if lots:
            held = any(o.teaches and not o.last for o in sheet.orders)
            held = held or any(wave == sheet.wave.number and g.open for (wave, _), g in self.beds.items())
            self.queue.append(Queue(deque(Lot(sheet, tuple(lot)) for lot in lots.values()), held))

    def wait_again(self) -> None:
        """After a restart: what plans had asked for and nobody had begun waits for its turn."""
        groups = [*self.scheduler.unfinished.values(), *self.scheduler.ready.values()]
        self.beds = {(g.item.wave, g.item.place): g for g in groups if g.item.teaches}
        begun = {(p.sheet.wave.number, p.sheet.name, p.index) for g in groups for p in g.item.plots.values()}
        for wave in self.waves.live.values():
            for name, sheet in wave.sheets.items():
                missing = (i for i, d in enumerate(sheet.came) if d is None and (wave.number, name, i) not in begun)
                self.ask(sheet, missing)

    def _ask(self, sheets: list[Sheet]) -> None:
        """New rounds of a plan. The groups of prompts that it had asked before grow, or were given up."""
        while sheets:
            sheet = sheets.pop(0)
            known = [i for i, o in enumerate(sheet.orders) if o.teaches and o.prompt.place not in sheet.new]
            self.ask(sheet, sorted({*range(len(sheet.orders))} - {*known}))
            lots: dict[int, list[int]] = {}
            for i in known:
                lots.setdefault(sheet.orders[i].prompt.place, []).append(i)
            for place, indices in lots.items():
                group = self.beds.get((sheet.wave.number, place))
                if group is not None:
                    for part, i in enumerate(indices, len(group.wanted)):
                        group.item.plots[part] = self.plot(sheet, i)
                    self.scheduler.extend(group, [self.way.size(sheet.orders[i]) for i in indices])
                    continue
                for i in indices:
                    sheets += self.waves.deliver(sheet, i, Delivery(sheet.orders[i], (), kept=False))

    def _look(self, group: Group) -> None:
        """Gather the parts of a group that are over and that nobody writes in any more."""
        bed: Bed = group.item
        for part, plot in list(bed.plots.items()):
            full = group.got[part] == group.wanted[part]
            writing = any(r.part == part and (r.id in self.tasks or r.id in self._late) for r in group.members)
            if not plot.gathering and (full or group.fate) and not writing:
                self._gather(group, part)

    def _look_after(self) -> None:
        orphans, self._orphans = self._orphans, []
        for group in orphans:
            self._look(group)

    def _gather(self, group: Group, part: int) -> None:
        bed: Bed = group.item
        plot, members = bed.plots[part], [r for r in group.members if r.part == part]
        self.way.ripe(plot, [r for r in members if not group.fate or r.fate != group.fate])
        gathering = self.waves.live[bed.wave].gathering
        if group.fate:
            plot.tree.item = plot.order.prompt.item.id
            bed.lost.append(plot.tree)
            self._delivered(group, part, replace(gathering.delivery(plot.order, plot.tree), kept=False))
            return
        seen = plot.flight.outcomes(plot.tree)
        delivery, heads = gathering.gather(plot.order, plot.tree, seen, plot.sheet.name[-1])
        bed.gathered = gathering.groups[bed.place] if bed.teaches else plot.tree
        plot.gathering = True
        if heads:
            reading = asyncio.get_running_loop().create_task(gathering.rescore(plot.order, heads))
            self._reading.add(reading)
            reading.add_done_callback(partial(self._read, group, part, delivery))
        else:
            self._delivered(group, part, gathering.judged(delivery))

    def _read(self, group: Group, part: int, delivery: Delivery, reading: asyncio.Task[None]) -> None:
        self._reading.discard(reading)
        bed: Bed = group.item
        if self.scheduler.phase == "closed":
            return
        try:
            reading.result()
            self._delivered(group, part, self.waves.live[bed.wave].gathering.judged(delivery))
        except Exception as error:  # raised again where the loop waits
            self._error = error
        self._news.set()

    def _delivered(self, group: Group, part: int, delivery: Delivery) -> None:
        """Tell the plan, grow what it asks for next, and let go of what it will ask nothing more of."""
        bed: Bed = group.item
        plot = bed.plots.pop(part)
        bed.lost += plot.lost
        wave, name = plot.sheet.wave, plot.sheet.name
        sheets = self.waves.deliver(plot.sheet, plot.index, delivery)
        if name not in wave.sheets:
            del self._work[wave.number, name]
        self._ask(sheets)
        if not bed.teaches:
            self.scheduler.release(group)
        closed, over = wave.following.closed, wave.following.over
        mine = [(place, g) for (number, place), g in self.beds.items() if number == wave.number]
        for place, other in mine:
            if other.open and not other.item.plots and (over or place in closed):
                self.scheduler.release(other)
        if self.queue:
            self.scheduler.pump()
        self._look_after()

    def _launch(self, rollout: Rollout) -> None:
        if self._error is not None:
            return  # the run is at its end; the loop is about to hear of it
        if not self.tasks:
            self._since = time.monotonic()
        plot = _plot(rollout)
        self.way.ready(plot, rollout)
        task = asyncio.get_running_loop().create_task(self.way.play(plot, rollout))
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
            self.way.failed(_plot(rollout), rollout, error)
        self._report(rollout)

    def _report_later(self, rollout: Rollout) -> None:
        self._late.discard(rollout.id)
        self._report(rollout)

    def _report(self, rollout: Rollout) -> None:
        try:
            plot = _plot(rollout)
            made, finish, loose = self.way.stand(plot, rollout)
            if self._resting and finish == "abort" and not rollout.fate:
                self.due[rollout.id] = rollout
            else:
                plot.reported[rollout.index] = rollout.tokens + sum(s.tokens for s in made)
                self.scheduler.ended(rollout, made, finish, loose=loose)
                if self.scheduler.phase != "closed":
                    self._look(rollout.group)
                    self._look_after()
        except Exception as error:  # raised again where the loop waits
            self._error = error
        self._news.set()

    async def _until(self, there: Callable[[], bool]) -> None:
        while not there():
            if self._error is not None:
                raise self._error
            if not (self.tasks or self._resting or self._late or self._reading):
                raise TrainError(
                    f"nothing is under way at version {self.scheduler.version} and no batch is complete: the schedule "
                    f"has stopped itself ({self.scheduler.load}); choose another one"
                )
            self._news.clear()
            await self._news.wait()

    def _grows(self, group: Group) -> bool:
        return any(r.id in self.tasks for r in group.members)

    @property
    def _at_rest(self) -> bool:
        growing = self.tasks.keys() if self.way.cuttable else [i for i in self.tasks if self.scheduler.running[i].fate]
        return not (growing or self._reading or self._late)

    def _accepts(self, group: Group) -> bool:
        return self._refusal(group.item) is None

    def _refusal(self, bed: Bed) -> str | None:
        if not bed.teaches:
            return MEASURED
        return next((why for f in self.parts.filters if (why := f(bed.tree)) is not None), None)

    def _settled(self, group: Group) -> None:
        bed: Bed = group.item
        self.beds.pop((bed.wave, bed.place), None)
        if group.fate.startswith("dropped"):
            self.settled.append(group)
            self._orphans.append(group)
        self._lost = self._lost + 1 if group.fate == "dropped: failures" else 0
        if self._lost >= GIVE_UP:
            events = [e.why for e in group.item.tree.events if e.kind == "fail"]
            self._error = TrainError(
                f"{self._lost} groups in a row failed ({events[-1] if events else 'for no recorded reason'}); "
                "mend it and go on with resume=True (--resume)"
            )
        self.told(group)


def _plot(rollout: Rollout) -> Plot:
    return rollout.group.item.plots[rollout.part]
