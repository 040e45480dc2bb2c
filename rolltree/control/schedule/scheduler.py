"""The scheduler: told what ended, it says what starts, stops, is trained and is published.

It is a state machine without time, threads or models. Whoever drives it reports `ended`, `trained` and `published`,
from an event loop, from actors, or from a heap of simulated events; equal reports in equal order give equal decisions.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Literal, Protocol

from rolltree.control.order import ControlError
from rolltree.control.schedule.presets import Schedule
from rolltree.control.schedule.rollout import Group, Offer, Rollout, Segment
from rolltree.control.schedule.rules import Load, Window

# Who does what the scheduler decides: real engines, or a heap of simulated events.

Finish = Literal["done", "abort", "failed"]
"""How a rollout ended: whole, stopped, or broken."""


class Executor(Protocol):
    """Who does the work. No call reports back before it returns; what was asked for is reported later, once."""

    def start(self, rollout: Rollout) -> None:
        """Begin a rollout, or go on after the tokens that it has. Ends in `ended`."""
        ...

    def abort(self, rollouts: Sequence[Rollout]) -> None:
        """Stop rollouts under way; each ends in `ended` with what it made, or whole if it was too late.

        The same one may be named twice and still ends once.
        """
        ...

    def train(self, batch: Sequence[Group]) -> None:
        """Update the weights. Ends in `trained`."""
        ...

    def publish(self, version: int) -> None:
        """Give the engines the new weights. Ends in `published`."""
        ...


COUNTS = ("version", "_groups", "_rollouts", "_started", "_plans")
"""Counters that belong to a scheduler's state."""


@dataclass(slots=True)
class Scheduler:
    """One run. `fresh(number)` says what the next group is to be; None = none may begin now."""

    schedule: Schedule
    executor: Executor
    fresh: Callable[[int], Offer | None]
    batch: int
    """Groups per update; may be changed between a publication and `published`."""
    clock: Callable[[], float]
    """Only to stamp groups with."""
    accept: Callable[[Group], bool] = lambda _: True
    """Whether a finished group is to be trained on."""
    on_settled: Callable[[Group], None] = lambda _: None
    """Called with every group that is settled."""
    pressing: Callable[[], bool] = lambda: False
    """Whether the next group must begin now, whatever admission says: it belongs to some that have begun."""
    patience: int = 3
    """Failed rollouts a group may have before it is given up; in lock-step they stay in it."""
    version: int = 0
    phase: Literal["free", "training", "stopping", "publishing", "closed"] = "free"
    numbers: Counter[str] = field(default_factory=Counter[str])
    """Rollouts by usage, and `submitted`."""
    tokens: Counter[str] = field(default_factory=Counter[str])
    """Reported tokens: `trained`, `masked`, `wasted`, `carried`."""
    running: dict[int, Rollout] = field(default_factory=dict[int, Rollout])
    """Rollouts with the executor."""
    unfinished: dict[int, Group] = field(default_factory=dict[int, Group])
    """Groups under way and carried over."""
    partial: OrderedDict[int, Group] = field(default_factory=OrderedDict[int, Group])
    """Groups carried over: these start first."""
    ready: dict[int, Group] = field(default_factory=dict[int, Group])
    """Groups to be trained."""
    _held: list[Rollout] = field(default_factory=list[Rollout])
    _window: Window = field(init=False)
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

    def pump(self) -> None:
        """Do all that may be done now. Call it once to begin; every report calls it where something changed."""
        if self.phase == "free" and self._batch_there():
            self._train()
        halted = self.phase in ("stopping", "publishing") and self.schedule.resume.update != "run on"
        if not halted and self.phase != "closed":
            self._admit()
        if self.phase == "free" and self.schedule.lockstep and self._batch_there():
            self._train()  # of a plan that asked for nothing
        if self.phase == "stopping" and not self.running:
            self.phase = "publishing"
            self.executor.publish(self.version + 1)

    def ended(self, rollout: Rollout, made: Sequence[Segment], finish: Finish = "done", *, loose: int = 0) -> None:
        """A rollout ended, with what it made since it last started; `loose` tokens of it are of an unfinished turn."""
        del self.running[rollout.id]
        group = rollout.group
        if rollout.usage:
            self.tokens["carried" if rollout.usage == "carried" else "wasted"] += sum(s.tokens for s in made)
            # A spare of one part may be the last that a recalled group waits for, or the last that stood in the way of
            # the paused groups that a window waits for.
            if self._carry(group) or not self.running:
                self.pump()
            return
        rollout.segments.extend(made)
        if finish == "done":
            rollout.done = True
            self._arrived(rollout)
        elif finish == "failed":
            self._failed(rollout)
        else:
            self._stopped(rollout, loose)
        self._carry(group)
        if group.number not in self.unfinished or group.number in self.partial or not self.running:
            self.pump()

    def extend(self, group: Group, sizes: Sequence[int]) -> None:
        """More is wanted of an open group that has all it was to have so far."""
        for size in sizes:
            group.wanted.append(size)
            group.got.append(0)
            for _ in range(size + self.schedule.stop.spare):
                self._go(self._member(group, len(group.wanted) - 1))

    def release(self, group: Group) -> None:
        """Nothing more is wanted of an open group."""
        group.open = False
        if group.number in self.unfinished and group.full:
            self._complete(group)
            self.pump()

    def trained(self) -> None:
        """The weights were updated with the batch that was taken last."""
        if self.schedule.resume.update == "run on":
            self.phase = "publishing"
            self.executor.publish(self.version + 1)
        else:
            self.phase = "stopping"
            if self.schedule.resume.update == "interrupt" and self.running:
                self.executor.abort(list(self.running.values()))
        self.pump()

    def published(self) -> None:
        """The engines have the new weights."""
        self._sizes.pop(self.version, None)
        self.version += 1
        self.phase = "free"
        self._expire()
        held, self._held = self._held, []
        for rollout in held:
            if not rollout.usage:
                self._launch(rollout)
        self._started = len(self.unfinished) - len(self.partial) + len(self.ready)
        self.pump()

    def close(self) -> None:
        """End the run: whatever is not settled is carried, and nothing starts any more."""
        self.phase = "closed"
        for group in [*self.ready.values(), *self.unfinished.values()]:
            self._settle(group, "carried")
        if self.running:
            self.executor.abort(list(self.running.values()))

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
        """All of it as plain values but for the items: after a publication and before `published` is told."""
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

    def load_state_dict(self, state: Mapping[str, Any], item: Callable[[int], Any]) -> None:
        """Go back to a state; `item` gives a group's by its number. What ran is started, `published` goes on."""
        for name, value in state["counts"].items():
            setattr(self, name, value)
        self.numbers, self.tokens = Counter(state["numbers"]), Counter(state["tokens"])
        groups = {told["number"]: Group.restored(told, item(told["number"])) for told in state["groups"]}
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

    def _admit(self) -> None:
        room = self.schedule.admission.room(self.load)
        if room <= 0 and self.phase == "free" and not self.running and self._window.taken < self.batch:
            # Enough is finished, but behind the window: only the paused groups before it can move it on.
            room = min(len(self.partial), self.batch - self._window.taken)
        while room > 0 or self.pressing():
            if room > 0 and self.partial:
                _, group = self.partial.popitem(last=False)
                self._started += 1
                for rollout in group.members:
                    if not rollout.done and not rollout.usage:
                        self._launch(rollout)
            elif not self._begin():
                return
            room = self.schedule.admission.room(self.load) if self.schedule.lockstep else room - 1

    def _begin(self) -> bool:
        offer = self.fresh(self._groups)
        if offer is None:
            return False
        if offer.plan >= self._plans:
            self._plans = offer.plan + 1
            if self.schedule.lockstep:
                self._sizes[offer.plan] = self.batch
        if not offer.sizes:
            return True
        group = Group(
            self._groups, offer.item, list(offer.sizes), self.version, self.clock(), offer.plan, open=offer.open
        )
        self._groups += 1
        self._started += 1
        self.unfinished[group.number] = group
        self._untrained[group.born] += 1
        for part, size in enumerate(offer.sizes):
            for _ in range(size + self.schedule.stop.spare):
                self._launch(self._member(group, part))
        return True

    def _member(self, group: Group, part: int) -> Rollout:
        rollout = Rollout(self._rollouts, group, len(group.members), part)
        self._rollouts += 1
        self.numbers["submitted"] += 1
        group.members.append(rollout)
        return rollout

    def _launch(self, rollout: Rollout) -> None:
        self.running[rollout.id] = rollout
        self.executor.start(rollout)

    def _go(self, rollout: Rollout) -> None:
        """Launch a rollout, or hold it where nothing may start."""
        if self.phase in ("stopping", "publishing") and self.schedule.resume.update != "run on":
            self._held.append(rollout)
        else:
            self._launch(rollout)

    def _carry(self, group: Group) -> bool:
        """Keep a recalled group for later once it is at rest and lacks something; whether it is kept now."""
        if not (group.recalled and group.number in self.unfinished) or any(r.id in self.running for r in group.members):
            return False
        group.recalled = False
        if not group.full:
            self.partial[group.number] = group
        return not group.full

    def _stopped(self, rollout: Rollout, loose: int) -> None:
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

    def _failed(self, rollout: Rollout) -> None:
        group = rollout.group
        self._end(rollout, "failed")
        group.failed += 1
        if self.schedule.lockstep:
            self._arrived(rollout)
            return
        if group.failed > self.patience:
            self._drop(group, "failures")
            return
        substitute = self._member(group, rollout.part)
        if not group.recalled:
            self._go(substitute)

    def _arrived(self, rollout: Rollout) -> None:
        """One of those that are wanted is there."""
        group, part = rollout.group, rollout.part
        group.got[part] += 1
        if group.got[part] == group.wanted[part]:
            self._part_full(group, part)

    def _part_full(self, group: Group, part: int) -> None:
        late = [r for r in group.members if r.part == part and not r.done and not r.usage]
        for rollout in late:
            self._end(rollout, "dropped: spare")
        under_way = [r for r in late if r.id in self.running]
        if under_way:
            self.executor.abort(under_way)
        if group.full and not group.open:
            self._complete(group)

    def _complete(self, group: Group) -> None:
        if self.schedule.age.too_old(group.born, self.version):
            self._drop(group, "age")
        elif not self.accept(group):
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
            over = self._plans > self.version and not self.unfinished and not self.pressing()
            return over and self.schedule.admission.room(self.load) <= 0
        return self._window.taken >= self.batch and not self._waits()

    def _of_plan(self) -> list[Group]:
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
            self.executor.abort(list(self.running.values()))
        self.executor.train(batch)

    def _expire(self) -> None:
        """Drop what has become too old."""
        late = self._late
        groups: list[Group] = []
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

    def _late(self, group: Group) -> bool:
        return self.schedule.age.too_old(group.born, self.version)

    def _drop(self, group: Group, rule: str) -> None:
        under_way = [r for r in group.members if r.id in self.running and not r.usage]
        self._started -= group.number not in self.partial  # its place is free, or nothing could ever fill a batch
        self._settle(group, f"dropped: {rule}")
        if under_way:
            self.executor.abort(under_way)
        self._slide()

    def _settle(self, group: Group, usage: str) -> None:
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
        self.on_settled(group)

    def _end(self, rollout: Rollout, usage: str) -> None:
        rollout.usage = usage
        self.numbers[usage] += 1
        if usage == "trained":
            self.tokens["masked"] += rollout.masked
            self.tokens["trained"] += rollout.tokens - rollout.masked
        else:
            self.tokens["carried" if usage == "carried" else "wasted"] += rollout.tokens
