"""From a plan's orders to groups of the scheduler, and from what they became back to the plan.

What a plan orders of a prompt becomes a group, or a further part of one. When a part is over it is gathered into the
prompt's tree and delivered; the plan may then ask for more. A group is let go of, to be trained or dropped, when
nothing more will be asked of its prompt.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, cast

from rolltree.control.following import Name
from rolltree.control.hints import solver
from rolltree.control.ledger import Budget
from rolltree.control.order import Delivery
from rolltree.control.plan import Step
from rolltree.control.schedule import Group, Offer, Rollout, Scheduler
from rolltree.engine.protocol import Engine, Sampling
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
from rolltree.train.config import TrainConfig
from rolltree.train.gathering import MEASURED, Gathering, asked_task, names_of, ordered_item
from rolltree.train.steering import Steering
from rolltree.train.waves import Sheet, Waves
from rolltree.train.ways import Bed, Plot, Way
from rolltree.train.widths import Ordered, width_of
from rolltree.tree import Forest


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
class Sowing:
    """One run's plans and the groups that they asked for."""

    parts: Parts
    engine: Engine
    task: Task
    config: TrainConfig
    way: Way
    steering: Steering
    cursor: Cursor
    budget: Budget
    clock: Callable[[], float]
    writes: Callable[[Rollout], bool]
    """Whether a rollout is being grown, or will still be reported."""
    heard: Callable[[Exception | None], None]
    """Told when log-probs that were to be read again are there, or what broke."""
    scheduler: Scheduler = field(init=False)
    waves: Waves = field(init=False)
    queue: deque[Queue] = field(default_factory=deque[Queue])
    """What plans asked for and has not begun."""
    beds: dict[tuple[int, int], Group] = field(default_factory=dict[tuple[int, int], Group])
    """Groups that teach and are not settled, by wave and place."""
    reading: set[asyncio.Task[None]] = field(default_factory=set["asyncio.Task[None]"])
    """Reading log-probs again in gathered trees."""
    _orphans: list[Group] = field(default_factory=list[Group])
    """Groups that were given up before their plans knew what came of them."""
    _work: dict[tuple[int, Name], Sheetwork] = field(default_factory=dict[tuple[int, Name], Sheetwork])

    def __post_init__(self) -> None:
        self.waves = Waves(self.steering, self.cursor, self.config.prompts, self._plan)

    @property
    def limit(self) -> int:
        """Most policy tokens per path."""
        return self.config.max_tokens or self.task.max_tokens

    # -- what the scheduler asks -----------------------------------------------------------------------------------

    def fresh(self, number: int) -> Offer | None:
        """The next group that a plan asks for; None while it has to wait."""
        if not self.queue:
            if self.waves.filling:
                return None
            self._hear(self.waves.begin())
        queue = self.queue[0]
        waits = queue.together and not queue.begun and bool(self.scheduler.running)
        if waits and self.scheduler.schedule.admission.room(self.scheduler.load) < len(queue.lots):
            return None
        queue.begun = True
        sheet, indices = queue.lots.popleft()
        if not queue.lots:
            self.queue.popleft()
        first = sheet.orders[indices[0]]
        bed = Bed(sheet.wave.number, first.prompt.place, first.for_training)
        for part, i in enumerate(indices):
            bed.plots[part] = self.plot(sheet, i)
        return Offer(bed, [self.way.size(sheet.orders[i]) for i in indices], open=True)

    def pressing(self) -> bool:
        """Whether groups have begun that the next one belongs to."""
        return bool(self.queue) and self.queue[0].together and self.queue[0].begun

    def refusal(self, bed: Bed) -> str | None:
        """Why a finished group must not teach; None = it may."""
        if not bed.for_training:
            return MEASURED
        return next((why for f in self.parts.filters if (why := f(bed.tree)) is not None), None)

    def begun(self, group: Group) -> None:
        """A group is under way: more may be asked for its prompt."""
        bed: Bed = group.item
        if bed.for_training:
            self.beds[bed.wave, bed.place] = group

    def settled(self, group: Group) -> None:
        """A group is trained, dropped or carried; what its plan does not know yet it is told by `look_after`."""
        bed: Bed = group.item
        self.beds.pop((bed.wave, bed.place), None)
        if group.usage.startswith("dropped"):
            self._orphans.append(group)

    # -- what plans ask for ----------------------------------------------------------------------------------------

    def _wait(self, sheet: Sheet, indices: Iterable[int]) -> None:
        """Let these orders of a round wait for their turn, in groups of one prompt each."""
        lots: dict[int, list[int]] = {}
        for i in indices:
            order = sheet.orders[i]
            lots.setdefault(order.prompt.place if order.for_training else -1 - i, []).append(i)
        if lots:
            held = any(o.for_training and not o.last for o in sheet.orders)
            held = held or any(wave == sheet.wave.number and g.open for (wave, _), g in self.beds.items())
            self.queue.append(Queue(deque(Lot(sheet, tuple(lot)) for lot in lots.values()), held))

    def wait_again(self) -> None:
        """After a restart: what plans had asked for and nobody had begun waits for its turn."""
        groups = [*self.scheduler.unfinished.values(), *self.scheduler.ready.values()]
        self.beds = {(g.item.wave, g.item.place): g for g in groups if g.item.for_training}
        begun = {(p.sheet.wave.number, p.sheet.name, p.index) for g in groups for p in g.item.plots.values()}
        for wave in self.waves.live.values():
            for name, sheet in wave.sheets.items():
                missing = (i for i, d in enumerate(sheet.came) if d is None and (wave.number, name, i) not in begun)
                self._wait(sheet, missing)

    def _hear(self, sheets: list[Sheet]) -> None:
        """New rounds of a plan. The groups of prompts that it had asked before grow, or were given up."""
        while sheets:
            sheet = sheets.pop(0)
            known = [i for i, o in enumerate(sheet.orders) if o.for_training and o.prompt.place not in sheet.new]
            self._wait(sheet, sorted({*range(len(sheet.orders))} - {*known}))
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

    def look(self, group: Group) -> None:
        """Gather the parts of a group that are over and that nobody writes in any more."""
        bed: Bed = group.item
        for part, plot in list(bed.plots.items()):
            full = group.got[part] == group.wanted[part]
            writing = any(r.part == part and self.writes(r) for r in group.members)
            if not plot.gathering and (full or group.usage) and not writing:
                self._gather(group, part)

    def look_after(self) -> None:
        """Tell plans what came of groups that were given up; not from inside the scheduler."""
        orphans, self._orphans = self._orphans, []
        for group in orphans:
            self.look(group)

    def _gather(self, group: Group, part: int) -> None:
        bed: Bed = group.item
        plot, members = bed.plots[part], [r for r in group.members if r.part == part]
        self.way.ripe(plot, [r for r in members if not group.usage or r.usage != group.usage])
        gathering = self.waves.live[bed.wave].gathering
        if group.usage:
            plot.tree.item = plot.order.prompt.item.id
            bed.lost.append(plot.tree)
            self._delivered(group, part, replace(gathering.delivery(plot.order, plot.tree), kept=False))
            return
        seen = plot.flight.outcomes(plot.tree)
        delivery, heads = gathering.gather(plot.order, plot.tree, seen, plot.sheet.name[-1])
        bed.gathered = gathering.groups[bed.place] if bed.for_training else plot.tree
        plot.gathering = True
        if heads:
            reading = asyncio.get_running_loop().create_task(gathering.rescore(plot.order, heads))
            self.reading.add(reading)
            reading.add_done_callback(partial(self._read, group, part, delivery))
        else:
            self._delivered(group, part, gathering.judged(delivery))

    def _read(self, group: Group, part: int, delivery: Delivery, reading: asyncio.Task[None]) -> None:
        self.reading.discard(reading)
        bed: Bed = group.item
        if self.scheduler.phase == "closed":
            return
        try:
            reading.result()
            self._delivered(group, part, self.waves.live[bed.wave].gathering.judged(delivery))
        except Exception as error:  # raised again where the loop waits
            self.heard(error)
        else:
            self.heard(None)

    def _delivered(self, group: Group, part: int, delivery: Delivery) -> None:
        """Tell the plan, grow what it asks for next, and let go of what it will ask nothing more of."""
        bed: Bed = group.item
        plot = bed.plots.pop(part)
        bed.lost += plot.lost
        wave, name = plot.sheet.wave, plot.sheet.name
        sheets = self.waves.deliver(plot.sheet, plot.index, delivery)
        if name not in wave.sheets:
            del self._work[wave.number, name]
        self._hear(sheets)
        if not bed.for_training:
            self.scheduler.release(group)
        closed, over = wave.following.closed, wave.following.over
        mine = [(place, g) for (number, place), g in self.beds.items() if number == wave.number]
        for place, other in mine:
            if other.open and not other.item.plots and (over or place in closed):
                self.scheduler.release(other)
        self.scheduler.pump()
        self.look_after()

    # -- where it grows --------------------------------------------------------------------------------------------

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
