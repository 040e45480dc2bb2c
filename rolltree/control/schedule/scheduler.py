"""The scheduler: told what happened, it says what starts, stops, is trained and is published.

It is a state machine without time, threads or models: `on(event)` returns the actions to be done now, in order. A
driver applies them and reports what came of them, from an event loop, from actors, or from a heap of simulated events.
Equal events in equal order give equal actions.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Generic, Literal

from rolltree.control.order import ControlError
from rolltree.control.schedule.events import (
    Abort,
    Action,
    Ask,
    Closed,
    Ended,
    Event,
    Extended,
    Offered,
    Pressing,
    Publish,
    Published,
    Released,
    Resized,
    Settled,
    Start,
    Train,
    Trained,
    Woken,
)
from rolltree.control.schedule.presets import Schedule
from rolltree.control.schedule.rollout import EmptyPlan, Group, Offer, Rollout, T
from rolltree.control.schedule.rules import Load, Window

COUNTS = ("version", "_groups", "_rollouts", "_started", "_plans")
"""Counters that belong to a scheduler's state."""


@dataclass(slots=True)
class Scheduler(Generic[T]):
    """One run."""

    schedule: Schedule
    batch: int
    """Groups per update."""
    patience: int = 3
    """Failed rollouts a group may have before it is given up; in lock-step they stay in it."""
    version: int = 0
    phase: Literal["free", "training", "stopping", "publishing", "closed"] = "free"
    numbers: Counter[str] = field(default_factory=Counter[str])
    """Rollouts by usage, and `submitted`."""
    tokens: Counter[str] = field(default_factory=Counter[str])
    """Reported tokens: `trained`, `masked`, `wasted`, `carried`."""
    running: dict[int, Rollout[T]] = field(default_factory=dict[int, Rollout[T]])
    """Rollouts that a driver was told to start and that have not ended."""
    unfinished: dict[int, Group[T]] = field(default_factory=dict[int, Group[T]])
    """Groups under way and carried over."""
    partial: OrderedDict[int, Group[T]] = field(default_factory=OrderedDict[int, Group[T]])
    """Groups carried over: these start first."""
    ready: dict[int, Group[T]] = field(default_factory=dict[int, Group[T]])
    """Groups to be trained."""
    _held: list[Rollout[T]] = field(default_factory=list[Rollout[T]])
    _window: Window[T] = field(init=False)
    """Finished groups that a batch may be made of; empty in lock-step, where a plan's groups are its batch."""
    _groups: int = 0
    _rollouts: int = 0
    _started: int = 0
    _plans: int = 0
    """Plans begun; their batches are trained in this order in lock-step."""
    _sizes: dict[int, int] = field(default_factory=dict[int, int])
    """In lock-step: how many groups make the batch of each plan that is not trained."""
    _untrained: Counter[int] = field(default_factory=Counter[int])
    """Groups that are not settled, by the version they started under."""
    _rested: Counter[int] = field(default_factory=Counter[int])
    """The finished ones among them."""
    _pressing: bool = False
    """Whether the next group must begin now."""
    _places: int | None = None
    """Groups that may still begin, while the answer to an `Ask` is outstanding."""
    _actions: list[Action[T]] = field(default_factory=list[Action[T]])
    """What the event at hand has led to so far."""

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ControlError(f"scheduler: batch={self.batch} makes no sense; give at least 1")
        self._window = Window(self.schedule.stop)

    @property
    def load(self) -> Load:
        """What admission looks at."""
        running, ready, training = len(self.unfinished) - len(self.partial), len(self.ready), self.phase != "free"
        if self.schedule.lockstep:
            running, ready = (self._plans - self.version - training) * self.batch, 0
        return Load(self.batch, self.version, running, ready, self._started, training)

    @property
    def size(self) -> int:
        """How many groups make the next batch; in lock-step at most so many."""
        return self._sizes.get(self.version, self.batch)

    def on(self, event: Event[T]) -> list[Action[T]]:
        """What is to be done now that this has happened."""
        if not isinstance(event, Offered):
            self._places = None  # a driver that failed to answer is asked again
        self._actions = actions = []
        match event:
            case Ended():
                self._ended(event)
            case Offered():
                self._offered(event)
            case Extended():
                self._extend(event)
            case Released():
                self._release(event)
            case Trained():
                self._trained()
            case Published():
                self._published()
            case Woken():
                self._pump()
            case Pressing():
                self._pressing = event.pressing
            case Resized():
                self.batch = event.batch
            case Closed():
                self._close()
        return actions

    def check(self) -> None:
        """Assert that every submitted rollout has one usage, or none yet and is in one place."""
        fates = sum(count for name, count in self.numbers.items() if name != "submitted")
        live = [r for g in (*self.unfinished.values(), *self.ready.values()) for r in g.members if not r.usage]
        if self.numbers["submitted"] != fates + len(live) or self.unfinished.keys() & self.ready.keys():
            raise ControlError(
                f"scheduler: {self.numbers['submitted']} rollouts were submitted, but {fates} have a usage and "
                f"{len(live)} are under way, paused or ready"
            )

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain values but for the items: after a publication and before `Published`."""
        if self.phase != "publishing":
            raise ControlError(f"scheduler: its state can be taken while weights are published, not while {self.phase}")
        return {
            "counts": {name: getattr(self, name) for name in COUNTS},
            "numbers": dict(self.numbers), "tokens": dict(self.tokens),
            "groups": [g.state() for g in (*self.unfinished.values(), *self.ready.values())],
            "ready": list(self.ready), "partial": list(self.partial), "running": list(self.running),
            "held": [r.id for r in self._held if not r.usage],
            "window": self._window.state_dict(), "sizes": dict(self._sizes),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any], items: Mapping[int, T]) -> list[Action[T]]:
        """Go back to a state, with the groups' items by number: what ran is to be started; `Published` goes on."""
        self._actions = actions = []
        for name, value in state["counts"].items():
            setattr(self, name, value)
        self.numbers, self.tokens = Counter(state["numbers"]), Counter(state["tokens"])
        groups = {told["number"]: Group[T].restored(told, items[told["number"]]) for told in state["groups"]}
        rollouts = {r.id: r for group in groups.values() for r in group.members}
        self.ready = {number: groups[number] for number in state["ready"]}
        self.unfinished = {number: group for number, group in groups.items() if number not in self.ready}
        self.partial = OrderedDict((number, groups[number]) for number in state["partial"])
        self._held = [rollouts[id] for id in state["held"]]
        self._window.load_state_dict(state["window"], groups)
        self._sizes = dict(state["sizes"])
        self._untrained = Counter(group.born for group in groups.values())
        self._rested = Counter(group.born for group in self.ready.values())
        self.phase = "publishing"
        for id in state["running"]:
            # What was being stopped when the state was taken has a usage already and is not begun again.
            if id in rollouts and not rollouts[id].usage:
                self._launch(rollouts[id])
        return actions

    def _pump(self) -> None:
        """Do all that may be done now; where the next group has to be asked for, it goes on with the answer."""
        if self.phase == "free" and self._batch_there():
            self._train()
        halted = self.phase in ("stopping", "publishing") and self.schedule.resume.update != "run on"
        if halted or self.phase == "closed":
            self._admitted()
        else:
            self._admit()

    def _admitted(self) -> None:
        """Nothing more may begin now."""
        if self.phase == "free" and self.schedule.lockstep and self._batch_there():
            self._train()  # of a plan that asked for nothing
        if self.phase == "stopping" and not self.running:
            self._publish()

    def _ended(self, event: Ended[T]) -> None:
        rollout, made = event.rollout, event.made
        del self.running[rollout.id]
        group = rollout.group
        if rollout.usage:
            self.tokens["carried" if rollout.usage == "carried" else "wasted"] += sum(s.tokens for s in made)
            # A spare of one part may be the last that a recalled group waits for, or the last that stood in the way of
            # the paused groups that a window waits for.
            if self._carry(group) or not self.running:
                self._pump()
            return
        rollout.segments.extend(made)
        if event.finish == "done":
            rollout.done = True
            self._arrived(rollout, event.refused)
        elif event.finish == "failed":
            self._failed(rollout, event.refused)
        else:
            self._stopped(rollout, event.loose)
        self._carry(group)
        if group.number not in self.unfinished or group.number in self.partial or not self.running:
            self._pump()

    def _extend(self, event: Extended[T]) -> None:
        group = event.group
        for size in event.sizes:
            group.wanted.append(size)
            group.got.append(0)
            for _ in range(size + self.schedule.stop.spare):
                self._go(self._member(group, len(group.wanted) - 1))

    def _release(self, event: Released[T]) -> None:
        group = event.group
        group.open = False
        if group.number in self.unfinished and group.full:
            self._complete(group, event.refused)
            self._pump()

    def _trained(self) -> None:
        if self.schedule.resume.update == "run on":
            self._publish()
        else:
            self.phase = "stopping"
            if self.schedule.resume.update == "interrupt":
                self._abort(self.running.values())
        self._pump()

    def _publish(self) -> None:
        self.phase = "publishing"
        self._actions.append(Publish(self.version + 1))

    def _published(self) -> None:
        self._sizes.pop(self.version, None)
        self.version += 1
        self.phase = "free"
        self._expire()
        held, self._held = self._held, []
        for rollout in held:
            if not rollout.usage:
                self._launch(rollout)
        self._started = len(self.unfinished) - len(self.partial) + len(self.ready)
        self._pump()

    def _close(self) -> None:
        self.phase, self._places = "closed", None
        for group in [*self.ready.values(), *self.unfinished.values()]:
            self._settle(group, "carried")
        self._abort(self.running.values())

    def _admit(self) -> None:
        room = self.schedule.admission.room(self.load)
        if room <= 0 and self.phase == "free" and not self.running and self._window.taken < self.batch:
            # Enough is finished, but behind the window: only the paused groups before it can move it on.
            room = min(len(self.partial), self.batch - self._window.taken)
        self._fill(room)

    def _fill(self, room: int) -> None:
        """Let groups begin, so many and those that press."""
        while room > 0 or self._pressing:
            if room <= 0 or not self.partial:
                self._places = room
                idle, admitted = not self.running, self.schedule.admission.room(self.load)
                self._actions.append(Ask(self._groups, admitted, idle, len(self.unfinished)))
                return
            _, group = self.partial.popitem(last=False)
            self._started += 1
            for rollout in group.members:
                if not rollout.done and not rollout.usage:
                    self._launch(rollout)
            room = self._left(room)
        self._admitted()

    def _left(self, room: int) -> int:
        """Places that are left once a group has begun."""
        return self.schedule.admission.room(self.load) if self.schedule.lockstep else room - 1

    def _offered(self, event: Offered[T]) -> None:
        room, self._places = self._places, None
        if room is None:
            raise ControlError("scheduler: a group was offered, and none was asked for")
        self._pressing = event.pressing
        if event.offer is None:
            self._admitted()
        else:
            self._begin(event.offer, event.now)
            self._fill(self._left(room))

    def _begin(self, offer: Offer[T] | EmptyPlan, now: float) -> None:
        if offer.plan >= self._plans:
            self._plans = offer.plan + 1
            if self.schedule.lockstep:
                self._sizes[offer.plan] = self.batch
        if isinstance(offer, EmptyPlan):
            return
        group = Group(self._groups, offer.item, list(offer.sizes), self.version, now, offer.plan, open=offer.open)
        self._groups += 1
        self._started += 1
        self.unfinished[group.number] = group
        self._untrained[group.born] += 1
        for part, size in enumerate(offer.sizes):
            for _ in range(size + self.schedule.stop.spare):
                self._launch(self._member(group, part))

    def _member(self, group: Group[T], part: int) -> Rollout[T]:
        rollout = Rollout(self._rollouts, group, len(group.members), part)
        self._rollouts += 1
        self.numbers["submitted"] += 1
        group.members.append(rollout)
        return rollout

    def _launch(self, rollout: Rollout[T]) -> None:
        self.running[rollout.id] = rollout
        self._actions.append(Start(rollout))

    def _abort(self, rollouts: Iterable[Rollout[T]]) -> None:
        if named := list(rollouts):
            self._actions.append(Abort(named))

    def _go(self, rollout: Rollout[T]) -> None:
        """Launch a rollout, or hold it where nothing may start."""
        if self.phase in ("stopping", "publishing") and self.schedule.resume.update != "run on":
            self._held.append(rollout)
        else:
            self._launch(rollout)

    def _carry(self, group: Group[T]) -> bool:
        """Keep a recalled group for later once it is at rest and lacks something; whether it is kept now."""
        if not (group.recalled and group.number in self.unfinished) or any(r.id in self.running for r in group.members):
            return False
        group.recalled = False
        if not group.full:
            self.partial[group.number] = group
        return not group.full

    def _stopped(self, rollout: Rollout[T], loose: int) -> None:
        resume, made = self.schedule.resume, rollout.tokens
        rollout.stops += 1
        if resume.tokens == "drop":
            self._drop(rollout.group, "resume")
            return
        keep = resume.kept(made, loose)
        self.tokens["wasted"] += made - keep
        rollout.shorten(made - keep)
        if resume.tokens == "mask":
            rollout.masked = keep
        if not rollout.group.recalled:
            if self.phase in ("stopping", "publishing"):
                self._held.append(rollout)
            else:
                self._launch(rollout)

    def _failed(self, rollout: Rollout[T], refused: bool) -> None:
        group = rollout.group
        self._end(rollout, "failed")
        group.failed += 1
        if self.schedule.lockstep:
            self._arrived(rollout, refused)
            return
        if group.failed > self.patience:
            self._drop(group, "failures")
            return
        substitute = self._member(group, rollout.part)
        if not group.recalled:
            self._go(substitute)

    def _arrived(self, rollout: Rollout[T], refused: bool) -> None:
        """One of those that are wanted is there."""
        group, part = rollout.group, rollout.part
        group.got[part] += 1
        if group.got[part] == group.wanted[part]:
            self._part_full(group, part, refused)

    def _part_full(self, group: Group[T], part: int, refused: bool) -> None:
        late = [r for r in group.members if r.part == part and not r.done and not r.usage]
        for rollout in late:
            self._end(rollout, "dropped: spare")
        self._abort(r for r in late if r.id in self.running)
        if group.full and not group.open:
            self._complete(group, refused)

    def _complete(self, group: Group[T], refused: bool) -> None:
        if self.schedule.age.too_old(group.born, self.version):
            self._drop(group, "age")
        elif refused:
            self._drop(group, "filter")
        else:
            del self.unfinished[group.number]
            self.ready[group.number] = group
            self._rested[group.born] += 1
            if self.schedule.lockstep:
                return  # it waits for its plan, and is taken with it
            self._window.add(group)
            self._slide()

    def _slide(self) -> None:
        if not self.schedule.lockstep:
            self._window.slide(self._groups, self.batch, self._passed)

    def _passed(self, number: int) -> bool:
        """Whether a group is settled or collected."""
        group = self.ready.get(number)
        return number not in self.unfinished and (group is None or group.collected)

    def _waits(self) -> bool:
        """Whether a batch taken now would leave groups behind that can then no longer be trained in time."""
        return self.schedule.age.holds(self._untrained, self._rested, version=self.version, batch=self.batch)

    def _batch_there(self) -> bool:
        if self.schedule.lockstep:
            # Everything that was asked for is there, and nothing more may begin before this batch is trained.
            over = self._plans > self.version and not self.unfinished and not self._pressing
            return over and self.schedule.admission.room(self.load) <= 0
        return self._window.taken >= self.batch and not self._waits()

    def _of_plan(self) -> list[Group[T]]:
        """The groups of the oldest plan, those beyond its batch dropped."""
        mine = sorted((g for g in self.ready.values() if g.plan == self.version), key=lambda group: group.number)
        for group in mine[self.size :]:
            self._drop(group, "the step had enough prompts")
        return mine[: self.size]

    def _train(self) -> None:
        batch = self._of_plan() if self.schedule.lockstep else self._window.first(self.batch)
        self.phase = "training"
        for group in batch:
            group.staleness = self.version - group.born
            self._settle(group, "trained")
        self._slide()
        if self.schedule.stop.abort and self.running:
            for rollout in self.running.values():
                rollout.group.recalled = True
            self._abort(self.running.values())
        self._actions.append(Train(batch))

    def _expire(self) -> None:
        """Drop what has become too old."""
        late = self._late
        groups: list[Group[T]] = []
        if any(count and self.schedule.age.too_old(born, self.version) for born, count in self._rested.items()):
            groups += filter(late, self.ready.values())
        # Groups are begun in order of version, so those under way that are too old stand first.
        groups += (
            takewhile(late, self.unfinished.values())
            if self.schedule.age.early
            else filter(late, self.partial.values())
        )
        for group in groups:
            self._drop(group, "age")

    def _late(self, group: Group[T]) -> bool:
        return self.schedule.age.too_old(group.born, self.version)

    def _drop(self, group: Group[T], rule: str) -> None:
        under_way = [r for r in group.members if r.id in self.running and not r.usage]
        self._started -= group.number not in self.partial  # its place is free, or nothing could ever fill a batch
        self._settle(group, f"dropped: {rule}")
        self._abort(under_way)
        self._slide()

    def _settle(self, group: Group[T], usage: str) -> None:
        group.usage = usage
        self.unfinished.pop(group.number, None)
        self.partial.pop(group.number, None)
        self._rested[group.born] -= self.ready.pop(group.number, None) is not None
        self._untrained[group.born] -= 1
        if not self._untrained[group.born]:
            del self._untrained[group.born], self._rested[group.born]
        if group.collected:
            self._window.taken -= 1
        kept = set(group.kept) if usage == "trained" else set(group.members)
        for rollout in group.members:
            if not rollout.usage:
                self._end(rollout, usage if rollout in kept else "dropped: spare")
        self._actions.append(Settled(group))

    def _end(self, rollout: Rollout[T], usage: str) -> None:
        rollout.usage = usage
        self.numbers[usage] += 1
        if usage == "trained":
            self.tokens["masked"] += rollout.masked
            self.tokens["trained"] += rollout.tokens - rollout.masked
        else:
            self.tokens["carried" if usage == "carried" else "wasted"] += rollout.tokens
