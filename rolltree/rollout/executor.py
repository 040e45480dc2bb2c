"""The executor drives a schedule on a real engine, in an event loop.

It tells the scheduler what happened and does what the scheduler answers: it grows, stops and writes on rollouts. Which
prompts come next, and how many rollouts of each, it asks the control's plans (`group_queue`). Training and publishing
are the caller's: it awaits a `batch`, trains it while rollouts go on, and awaits `trained`. Nothing starts between a
publication and the next `begin`, so evaluations and checkpoints find under way only what could not be stopped.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from rolltree.control.ledger import Budget
from rolltree.control.order import Delivery
from rolltree.control.schedule import (
    Abort,
    Action,
    Ask,
    Closed,
    Ended,
    Event,
    Group,
    Publish,
    Published,
    Resized,
    Rollout,
    Schedule,
    Scheduler,
    Settled,
    Start,
    Train,
    Trained,
    Woken,
    follow,
)
from rolltree.engine.protocol import Engine
from rolltree.recipe.recipe import Parts
from rolltree.rollout.config import ControlState, RolloutConfig, RolloutError
from rolltree.rollout.cursor import Cursor
from rolltree.rollout.discarded import Discarded
from rolltree.rollout.group_queue import GroupQueue
from rolltree.rollout.slots import PromptGroup, RolloutSlot, Surroundings
from rolltree.rollout.units import Unit, unit_of
from rolltree.task.protocol import Task

LOG = logging.getLogger("rolltree.rollout")
MAX_FAILED_GROUPS = 32
"""Groups in a row lost to failures after which a run ends: what they need is broken for good."""
MAX_DROPPED_BATCHES = 64
"""Batches' worth of groups dropped in a row, by filters and rules, after which a run ends: nothing is left to train
on. In lock-step each step has its own bound, the rounds of its recipe."""
TOLD_DROPPED_BATCHES = (4, 8, 16, 32)
"""Batches' worth of groups dropped in a row after which that is said: until then a run only looks slow."""


@dataclass(slots=True, eq=False)
class RolloutExecutor:
    """One run's rollouts; `config.prompts` groups make a batch."""

    parts: Parts
    engine: Engine
    task: Task
    config: RolloutConfig
    schedule: Schedule
    unit: Unit
    control: ControlState
    cursor: Cursor
    peers: Mapping[str, Engine] = field(default_factory=dict[str, Engine])
    """Other policies by the actor they write as."""
    queue: GroupQueue = field(init=False)
    scheduler: Scheduler[PromptGroup] = field(init=False)
    discarded: Discarded = field(init=False)
    """Dropped groups that were not handed over yet."""
    budget: Budget = field(default_factory=partial(Budget, name="rollouts"))
    tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict[int, "asyncio.Task[None]"])
    """Rollouts being grown."""
    rescoring: set[asyncio.Task[None]] = field(default_factory=set["asyncio.Task[None]"])
    """Reading log-probs again in gathered trees."""
    due: dict[int, Rollout[PromptGroup]] = field(default_factory=dict[int, Rollout[PromptGroup]])
    """Rollouts to be grown from the next `begin` on."""
    began: float = field(default_factory=time.monotonic)
    busy: float = 0.0
    """Seconds in which some rollout was grown."""
    on_settled: Callable[[Group[PromptGroup]], None] = lambda _: None
    """Called with every group that is settled."""
    _awake: bool = False
    _resting: bool = False
    _batch: list[Group[PromptGroup]] | None = None
    _published: bool = False
    _error: Exception | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _since: float = 0.0
    _failed_in_a_row: int = 0
    _dropped_in_a_row: int = 0
    _stopping: set[int] = field(default_factory=set[int])
    _late: set[int] = field(default_factory=set[int])
    """Rollouts that were to be stopped before they began; not reported yet."""

    def __post_init__(self) -> None:
        around = Surroundings(
            self.parts, self.engine, self.task, self.config, self.cursor, self.budget, self.clock, self.peers
        )
        self.queue = GroupQueue(around, self.unit, self.control, self.schedule.lockstep)
        self.discarded = Discarded(self.queue.refusal)
        self.scheduler = Scheduler(self.schedule, self.prompts)

    def stage(self, parts: Parts) -> None:
        """What grows from now on is grown, filtered and shaped by these parts."""
        unit = unit_of(parts.strategy, parts.control)
        if type(unit) is not type(self.unit) and not self.schedule.lockstep:
            raise RolloutError(
                f"the rollouts of {parts.name} would be of another kind from this step on, while some are under way; "
                "let the knob stay, or leave the schedule out"
            )
        self.parts, self.unit = parts, unit
        self.queue.stage(parts, unit)

    @property
    def prompts(self) -> int:
        """Groups of the next batch: as many as the method wants, or as the run says."""
        return self.parts.prompts or self.config.prompts

    @property
    def limit(self) -> int:
        """Most policy tokens per path."""
        return self.queue.around.limit

    def clock(self) -> float:
        """Seconds since the run began; the one clock of all trees."""
        return time.monotonic() - self.began

    def busy_now(self) -> float:
        """Seconds so far in which some rollout was grown."""
        return self.busy + (time.monotonic() - self._since if self.tasks else 0.0)

    # -- what the caller asks for ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Go on: grow what is due, and what the scheduler starts now that the weights are published."""
        self._awake = True
        due, self.due = self.due, {}
        for rollout in due.values():
            self._launch(rollout)
        if self.scheduler.phase == "publishing":
            self._published = False
            self.tell(Published())
        else:
            self.tell(Woken())
        self._give_up()

    def want(self, groups: int) -> None:
        """So many make the next update, and are asked for at once from now on."""
        self.queue.plans.prompts = groups
        self.tell(Resized(groups))

    async def batch(self) -> list[Group[PromptGroup]]:
        """The groups of the next update, when nobody writes in their trees any more."""
        await self._until(lambda: self._batch is not None)
        groups, self._batch = self._batch or [], None
        await self._until(lambda: not any(map(self._grows, groups)))
        return groups

    async def trained(self) -> None:
        """The batch was trained: returns when new weights may be handed to the engine."""
        self._awake = self.schedule.resume.update == "run on" and not self.schedule.lockstep
        self.tell(Trained())
        await self._until(lambda: self._published and not self.rescoring)
        self._awake = False

    async def rest(self) -> None:
        """Stop all that can be cut, so that what stands in the trees is all there is; `begin` goes on."""
        self._resting = True
        try:
            for id, task in self.tasks.items():
                rollout = self.scheduler.running[id]
                if self.unit.cuttable or rollout.usage:
                    self._stop(id, task)
            await self._until(lambda: self._at_rest)
        finally:
            self._resting = False

    async def close(self) -> None:
        """End the run: whatever is not settled is carried. Every rollout has one usage then."""
        self._awake = False
        self.due.clear()
        tasks = list(self.tasks.values())
        self.tell(Closed())
        for id, task in self.tasks.items():
            self._stop(id, task)
        if tasks or self.rescoring:
            await asyncio.wait([*tasks, *self.rescoring])
        if self._error is None:
            self.scheduler.check()

    # -- what the scheduler answers --------------------------------------------------------------------------------

    def tell(self, event: Event[PromptGroup]) -> None:
        """Tell the scheduler what happened, and do what it answers."""
        follow(self.scheduler, event, self.act)

    def act(self, action: Action[PromptGroup]) -> Event[PromptGroup] | None:
        """Do one thing that the scheduler answered; an `Ask` is answered at once."""
        match action:
            case Start(rollout):
                self._start(rollout)
            case Abort(rollouts):
                self.abort(rollouts)
            case Train(batch):
                self._batch = list(batch)
                self._news.set()
            case Publish():
                self._published = True
                self._news.set()
            case Settled(group):
                self._settled(group)
            case Ask():
                return self.queue.offered(action, self.clock())
        return None

    def _start(self, rollout: Rollout[PromptGroup]) -> None:
        """Grow a rollout now, or when the caller goes on."""
        self.queue.begun(rollout.group)
        if self._awake:
            self._launch(rollout)
        else:
            self.due[rollout.id] = rollout

    def abort(self, rollouts: Sequence[Rollout[PromptGroup]]) -> None:
        """Stop rollouts, or let them finish where they cannot be cut and are still wanted."""
        for rollout in rollouts:
            if self.due.pop(rollout.id, None) is not None:
                # Told in the next turn of the loop, as whatever ends is: never while another event's actions are done.
                self._late.add(rollout.id)
                asyncio.get_running_loop().call_soon(self._report_later, rollout)
            elif (task := self.tasks.get(rollout.id)) is not None and (self.unit.cuttable or rollout.usage):
                self._stop(rollout.id, task)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _launch(self, rollout: Rollout[PromptGroup]) -> None:
        if self._error is not None:
            return  # the run is at its end; the caller is about to see why
        if not self.tasks:
            self._since = time.monotonic()
        slot = _slot(rollout)
        self.unit.ready(slot, rollout)
        task = asyncio.get_running_loop().create_task(self.unit.grow(slot, rollout))
        self.tasks[rollout.id] = task
        task.add_done_callback(partial(self._over, rollout))

    def _stop(self, id: int, task: asyncio.Task[None]) -> None:
        # A second cancellation would tear it away from the engine before it has the tokens it made.
        if id not in self._stopping:
            self._stopping.add(id)
            task.cancel()

    def _over(self, rollout: Rollout[PromptGroup], task: asyncio.Task[None]) -> None:
        del self.tasks[rollout.id]
        self._stopping.discard(rollout.id)
        if not self.tasks:
            self.busy += time.monotonic() - self._since
        if not task.cancelled() and (error := task.exception()) is not None:
            self.unit.failed(_slot(rollout), rollout, error)
        self._report(rollout)

    def _report_later(self, rollout: Rollout[PromptGroup]) -> None:
        self._late.discard(rollout.id)
        self._report(rollout)

    def _report(self, rollout: Rollout[PromptGroup]) -> None:
        try:
            slot = _slot(rollout)
            made, finish, loose = self.unit.progress(slot, rollout)
            if self._resting and finish == "abort" and not rollout.usage:
                self.due[rollout.id] = rollout
            else:
                slot.reported[rollout.index] = rollout.tokens + sum(s.tokens for s in made)
                self.tell(Ended(rollout, made, finish, loose))
                if self.scheduler.phase != "closed":
                    self._look(rollout.group)
                    self._give_up()
        except Exception as error:  # raised again where the caller waits
            self._error = error
        self._news.set()

    # Plans hear of a part that is over when nobody writes in it any more, one part after the other: an answer may
    # start and release others, and so give groups up.

    def _look(self, group: Group[PromptGroup]) -> None:
        """Gather the parts of a group that are over, in their order."""
        while (part := self.queue.over(group, self._growing(group))) is not None:
            delivery, rescore = self.queue.gather(group, part)
            if rescore is None:
                self._delivered(group, part, delivery)
            else:
                task = asyncio.get_running_loop().create_task(rescore)
                self.rescoring.add(task)
                task.add_done_callback(partial(self._rescored, group, part, delivery))

    def _rescored(
        self, group: Group[PromptGroup], part: int, delivery: Delivery, task: asyncio.Task[None]
    ) -> None:  # fmt: skip
        self.rescoring.discard(task)
        if self.scheduler.phase == "closed":
            return
        try:
            task.result()
            self._delivered(group, part, delivery)
        except Exception as error:  # raised again where the caller waits
            self._error = error
        self._news.set()

    def _delivered(self, group: Group[PromptGroup], part: int, delivery: Delivery) -> None:
        for event in self.queue.delivered(group, part, delivery):
            self.tell(event)
        self._give_up()

    def _give_up(self) -> None:
        """Tell plans what came of groups that were given up."""
        for group in self.queue.given_up():
            self._look(group)

    async def _until(self, there: Callable[[], bool]) -> None:
        while not there():
            if self._error is not None:
                raise self._error
            if not (self.tasks or self._resting or self._late or self.rescoring):
                raise RolloutError(
                    f"nothing is under way at version {self.scheduler.version} and no batch is complete: the schedule "
                    f"has stopped itself ({self.scheduler.load}); choose another one"
                )
            self._news.clear()
            await self._news.wait()

    def _grows(self, group: Group[PromptGroup]) -> bool:
        return any(r.id in self.tasks for r in group.members)

    def _growing(self, group: Group[PromptGroup]) -> set[int]:
        """Parts in which a rollout is grown or has still to be reported."""
        return {r.part for r in group.members if r.id in self.tasks or r.id in self._late}

    @property
    def _at_rest(self) -> bool:
        growing = (
            self.tasks.keys() if self.unit.cuttable else [i for i in self.tasks if self.scheduler.running[i].usage]
        )
        return not (growing or self.rescoring or self._late)

    def _settled(self, group: Group[PromptGroup]) -> None:
        self.queue.settled(group)
        dropped = group.usage.startswith("dropped")
        if dropped:
            self.discarded.add(group)
        if group.item.for_training:
            self._dropped_in_a_row = self._dropped_in_a_row + 1 if dropped else 0
        batches = self._dropped_in_a_row / self.prompts
        if dropped and group.item.for_training and batches in TOLD_DROPPED_BATCHES and not self.schedule.lockstep:
            LOG.warning(
                "%d groups in a row were dropped (%s), and none is left to train; the run ends after %d.",
                self._dropped_in_a_row, self.discarded.why(group), MAX_DROPPED_BATCHES * self.prompts,
            )  # fmt: skip
        if batches >= MAX_DROPPED_BATCHES and not self.schedule.lockstep:
            self._error = RolloutError(
                f"{self._dropped_in_a_row} groups in a row were dropped and none was left to train "
                f"({self.discarded.why(group)}); choose prompts of another level, another control, or a recipe without "
                "the filter, and go on with resume=True (--resume)"
            )
        self._failed_in_a_row = self._failed_in_a_row + 1 if group.usage == "dropped: failures" else 0
        if self._failed_in_a_row >= MAX_FAILED_GROUPS:
            events = [e.why for e in group.item.tree.events if e.kind == "fail"]
            self._error = RolloutError(
                f"{self._failed_in_a_row} groups in a row failed "
                f"({events[-1] if events else 'for no recorded reason'}); mend it and go on with resume=True (--resume)"
            )
        self.on_settled(group)


def _slot(rollout: Rollout[PromptGroup]) -> RolloutSlot:
    return rollout.group.item.slots[rollout.part]
