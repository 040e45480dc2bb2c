"""How many groups may start now. A group is the rollouts of one prompt; `batch` of them make an update."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rolltree.control.order import ControlError


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
