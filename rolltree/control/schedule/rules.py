"""How many groups may start now. A group is the rollouts of one prompt; `batch` of them make an update."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, Protocol

from rolltree.control.order import ControlError
from rolltree.control.schedule.rollout import Group, T

# What the objective is to do about old tokens: named here with the schedule, built where objectives are.


@dataclass(frozen=True, slots=True)
class ScheduleCorrection:
    """An importance weight π_proximal/π_sampled and its bounds, in the knobs of the objective `ImportanceWeight`."""

    bound: Literal["none", "truncate", "mask"] = "none"
    """`none` = no weight: old tokens are trained as if the proximal policy had sampled them."""
    unit: Literal["token", "sequence", "geometric"] = "token"
    low: float = 0.0
    high: float = 2.0
    decoupled: bool = False
    """Whether the surrogate clips against a proximal policy of its own (AReaL, arXiv 2505.24298, eq. 5) and does the
    weighing too: the objective `decoupled` with these knobs."""

    def knobs(self) -> dict[str, Any]:
        """Knobs for `ImportanceWeight` or, if decoupled, for the objective `decoupled`; none without a weight."""
        if self.bound == "none":
            return {}
        return {"unit": self.unit, "bound": self.bound, "low": self.low, "high": self.high}


# What happens to rollouts under way when weights change, and to the tokens they have.

Tokens = Literal["keep", "mask", "turn", "restart", "drop"]
Update = Literal["interrupt", "wait", "run on"]


@dataclass(frozen=True, slots=True)
class Resume:
    """Stopped rollouts go on, begin again or are dropped.

    `keep`: go on after their tokens, which carry their own version (AReaL, APRIL). `mask`: the same, but only tokens
    made since the last interruption are trained. `turn`: the unfinished turn is made again (ROLL). `restart`: all of it
    is. `drop`: the whole group is thrown away.
    """

    tokens: Tokens = "keep"
    update: Update = "interrupt"
    """At an update of the weights, rollouts under way are interrupted, waited for, or run on while engines reload."""

    def kept(self, made: int, loose: int) -> int:
        """How many of a stopped rollout's tokens stay, given how many of them belong to an unfinished turn."""
        if self.tokens == "turn":
            return made - loose
        return made if self.tokens in ("keep", "mask") else 0


# When a batch is complete, what is in it, and what becomes of the rollouts that it did not wait for.


@dataclass(frozen=True, slots=True)
class Stop:
    """A batch is complete when enough finished groups may be taken. Which they are, and who is stopped for it."""

    order: Literal["created", "finished"] = "created"
    """Among more finished groups than needed, those started first or those finished first."""
    window: float | None = None
    """Windowed FIFO: only groups started within so many batches of the oldest one not yet collected may be taken, so
    fewer groups than that ever overtake a slow one; None = any number may."""
    abort: bool = False
    """Whether a complete batch stops everything else; it is carried over as `Resume` says (APRIL)."""
    spare: int = 0
    """Rollouts started per group beyond those wanted; the last ones are dropped (RollArt's redundancy)."""
    batch: Literal["groups", "plan"] = "groups"
    """`groups`: so many accepted groups make a batch, whoever asked for them, and a failed rollout is made again.
    `plan`: a batch is what the plan of its step delivered, once it is over (lock-step training). It may be short, what
    it has too much is dropped, and a failed rollout stays in its group without an outcome."""

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ControlError(f"stop: window={self.window} can never hold a batch; give a number of at least 1")
        if self.spare < 0:
            raise ControlError(f"stop: spare={self.spare} makes no sense; give 0 or a number of rollouts")

    def edge(self, head: int, batch: int) -> float:
        """Groups with a number below this may be taken; `head` is the oldest one not yet collected."""
        return math.inf if self.window is None else head + math.ceil(self.window * batch)


# How old a group may be when it is trained.


@dataclass(frozen=True, slots=True)
class StalenessBound:
    """A bound on versions between a group's first token and the weights that it trains.

    Admission alone cannot keep such a bound: finished groups overtake slow ones. `wait` takes a batch only if all that
    it leaves behind can still be trained in time, the oldest first; with admission by `Ahead(most)` it never waits in
    vain. `drop` throws groups away that became too old: finished ones, and with `early` also those still under way.
    """

    most: int | None = None
    """None = no bound."""
    late: Literal["wait", "drop"] = "drop"
    early: bool = True

    def __post_init__(self) -> None:
        if self.most is not None and self.most < 0:
            raise ControlError(f"age: most={self.most} lets nothing be trained; give 0, a number of versions or None")

    def too_old(self, born: int, version: int) -> bool:
        """Whether a group is to be dropped."""
        return self.late == "drop" and self.most is not None and version - born > self.most

    def holds(self, untrained: Mapping[int, int], finished: Mapping[int, int], *, version: int, batch: int) -> bool:
        """Whether a batch must not be taken yet, from the numbers of untrained and finished groups by birth.

        A group born at b must be trained at version b + most at the latest. After this batch, taken from the finished
        oldest first, b + most − version more batches are taken by then: those born at b or before must fit into them.
        """
        if self.late != "wait" or self.most is None:
            return False
        waiting = there = 0
        for born in sorted(untrained):
            waiting += untrained[born]
            there += finished.get(born, 0)
            if waiting - min(batch, there) > (born + self.most - version) * batch:
                return True
        return False


# Which of the finished groups make the next batch, where batches are made of groups and not of whole plans.


@dataclass(slots=True)
class Window(Generic[T]):
    """Finished groups that wait to be trained: those that may be taken, and those that a window still holds back."""

    stop: Stop
    taken: int = 0
    """Groups that may be taken and are not settled: the live entries of `_inside`."""
    _inside: list[tuple[int, Group[T]]] = field(default_factory=list[tuple[int, Group[T]]])
    _outside: list[tuple[int, int, Group[T]]] = field(default_factory=list[tuple[int, int, Group[T]]])
    _head: int = 0
    """The oldest group that is neither settled nor collected."""
    _finished: int = 0

    def add(self, group: Group[T]) -> None:
        """A group is finished."""
        key = group.number if self.stop.order == "created" else self._finished
        self._finished += 1
        heapq.heappush(self._outside, (group.number, key, group))

    def slide(self, groups: int, batch: int, passed: Callable[[int], bool]) -> None:
        """Collect what the window reaches; collecting the oldest group moves the window on.

        `groups` have begun so far; `passed` says whether one of them is settled or collected.
        """
        moved = True
        while moved:
            moved = False
            if self.stop.window is not None:
                while self._head < groups and passed(self._head):
                    self._head += 1
            edge = self.stop.edge(self._head, batch)
            while self._outside and self._outside[0][0] < edge:
                _, key, group = heapq.heappop(self._outside)
                if not group.usage:
                    group.collected = moved = True
                    heapq.heappush(self._inside, (key, group))
                    self.taken += 1

    def first(self, count: int) -> list[Group[T]]:
        """The first of the collected groups; they are no longer here, and `taken` until they are settled."""
        batch: list[Group[T]] = []
        while len(batch) < count:
            _, group = heapq.heappop(self._inside)
            if not group.usage:
                batch.append(group)
        return batch

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain values, groups by their numbers."""
        return {
            "head": self._head, "finished": self._finished,
            "inside": sorted((key, g.number) for key, g in self._inside if not g.usage),
            "outside": sorted((number, key) for number, key, g in self._outside if not g.usage),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any], groups: Mapping[int, Group[T]]) -> None:
        """Go back to a state."""
        self._head, self._finished = state["head"], state["finished"]
        self._inside = [(key, groups[number]) for key, number in state["inside"]]  # sorted, and so a heap
        self._outside = [(number, key, groups[number]) for number, key in state["outside"]]
        self.taken = len(self._inside)


class Load(NamedTuple):
    """What an admission rule may look at. Counts are of groups."""

    batch: int
    """Groups an update needs; fewer where some of its trees are recalled from earlier steps. In lock-step a plan counts
    as so many groups from its beginning until its batch is taken, whatever it asks for."""
    version: int
    """Updates that were published."""
    running: int
    """Under way, those interrupted for an update included."""
    ready: int
    """Finished, accepted and not yet trained."""
    started: int
    """Begun since the last publication, and all that was begun before it and not trained by then; what was thrown away
    does not count."""
    training: bool
    """From the moment a batch is taken until its weights are published."""


class Admission(Protocol):
    """A rule of admission."""

    def room(self, load: Load) -> int:
        """How many more groups may start now; below 1 = none."""
        ...


@dataclass(frozen=True, slots=True)
class Ahead:
    """Never more groups than the next `staleness` + 1 updates can train (AReaL, arXiv 2505.24298, section 4.1).

    A group that is thrown away gives its place back. With staleness 0 it is synchronous training; with 1, rollouts of
    the next batch overlap with the update. The rule counts; it does not see which groups are late (see `Age`). In
    lock-step it counts whole plans, so plan n begins under version n − staleness at the earliest and is trained at
    version n: nothing that is done later could make it younger.
    """

    staleness: int = 0
    limit: float | None = None
    """Most groups under way, in batches; None = no limit of its own."""

    def __post_init__(self) -> None:
        if self.staleness < 0:
            raise ControlError(f"admission: staleness={self.staleness} makes no sense; give 0 or a number of versions")
        _positive("limit", self.limit)

    def room(self, load: Load) -> int:
        """Room below the bound."""
        bound = (self.staleness + 1 - load.training) * load.batch - (load.ready + load.running)
        return bound if self.limit is None else min(bound, math.ceil(self.limit * load.batch) - load.running)


@dataclass(frozen=True, slots=True)
class OverSample:
    """Start `factor` batches at once when fewer than one is in sight, none while training (APRIL, arXiv 2509.18521).

    Groups that are thrown away make room for another such portion, as in the released loop.
    """

    factor: float = 2.0

    def __post_init__(self) -> None:
        _at_least_one("factor", self.factor)

    def room(self, load: Load) -> int:
        """A whole portion or nothing."""
        short = load.running + load.ready < load.batch
        return math.ceil(self.factor * load.batch) if short and not load.training else 0


@dataclass(frozen=True, slots=True)
class Bounded:
    """A bound on what was begun under older weights (verl's asynchronous mode; one batch per publication).

    Nothing starts once (1 + threshold) batches wait or have started since the last publication, counting what was left
    over then. Rollouts that are continued do not count again.
    """

    threshold: float = 0.5
    limit: float = 2.0
    """Most groups under way, in batches."""

    def __post_init__(self) -> None:
        if self.threshold < 0:
            raise ControlError(f"admission: threshold={self.threshold} makes no sense; give 0 or a share of a batch")
        _at_least_one("limit", self.limit)

    def room(self, load: Load) -> int:
        """Room below the bound and the limit."""
        bound = math.ceil((1 + self.threshold) * load.batch)
        if load.ready >= bound:
            return 0
        return min(math.ceil(self.limit * load.batch) - load.running, bound - load.started)


@dataclass(frozen=True, slots=True)
class TopUp:
    """Always so many groups under way, until as many wait to be trained (slime's asynchronous worker)."""

    limit: float = 1.0
    """Groups under way, in batches."""

    def __post_init__(self) -> None:
        _at_least_one("limit", self.limit)

    def room(self, load: Load) -> int:
        """What is missing."""
        most = math.ceil(self.limit * load.batch)
        return 0 if load.ready >= most else most - load.running


def _positive(knob: str, value: float | None) -> None:
    if value is not None and value <= 0:
        raise ControlError(f"admission: {knob}={value} lets nothing start; give a number above 0")


def _at_least_one(knob: str, value: float) -> None:
    if value < 1:
        raise ControlError(f"admission: {knob}={value} can never fill a batch; give a number of at least 1")
