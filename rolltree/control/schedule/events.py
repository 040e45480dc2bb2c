"""What a scheduler is told, and what it answers: events go in, actions come out.

A driver applies the actions in their order and reports what came of them as later events, once for each: a `Start` and
an `Abort` end in `Ended`, a `Train` in `Trained`, a `Publish` in `Published`. An `Ask` is always the last action, and
the driver answers it before anything else (`follow`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol

from rolltree.control.schedule.rollout import EmptyPlan, Group, Offer, Rollout, Segment, T

Finish = Literal["done", "abort", "failed"]
"""How a rollout ended: whole, stopped, or broken."""

# -- events ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Woken:
    """Look at all that may be done now. It begins a run, and follows whatever changed outside."""


@dataclass(frozen=True, slots=True)
class Resized:
    """So many groups make an update from now on; told between a publication and `Published`."""

    batch: int


@dataclass(frozen=True, slots=True)
class Pressing:
    """Whether the next group must begin now, whatever admission says: it belongs to some that have begun."""

    pressing: bool


@dataclass(frozen=True, slots=True)
class Offered(Generic[T]):
    """The answer to an `Ask`."""

    offer: Offer[T] | EmptyPlan | None
    """What the next group is to be; None = none may begin now."""
    pressing: bool = False
    """As in `Pressing`, of the group after it."""
    now: float = 0.0
    """The stamp of the group."""


@dataclass(frozen=True, slots=True)
class Ended(Generic[T]):
    """A rollout ended."""

    rollout: Rollout[T]
    made: Sequence[Segment]
    """What it made since it last started."""
    finish: Finish = "done"
    loose: int = 0
    """Tokens of it that are of an unfinished turn."""
    refused: bool = False
    """Whether filters refuse its group, should it be complete with it."""


@dataclass(frozen=True, slots=True)
class Extended(Generic[T]):
    """More is wanted of an open group that has all it was to have so far."""

    group: Group[T]
    sizes: Sequence[int]
    """Rollouts of each further part."""


@dataclass(frozen=True, slots=True)
class Released(Generic[T]):
    """Nothing more is wanted of an open group."""

    group: Group[T]
    refused: bool = False
    """Whether filters refuse it."""


@dataclass(frozen=True, slots=True)
class Trained:
    """The weights were updated with the batch that was taken last."""


@dataclass(frozen=True, slots=True)
class Published:
    """The engines have the new weights."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The run ends: whatever is not settled is carried, and nothing starts any more."""


Event = (
    Woken | Resized | Pressing | Offered[T] | Ended[T] | Extended[T] | Released[T] | Trained | Published | Closed
)  # fmt: skip

# -- actions -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """Say what the next group is to be."""

    number: int
    """The group's, if it begins."""
    room: int
    """Groups that admission would let begin now."""
    idle: bool
    """Whether no rollout is with the driver."""
    unfinished: int
    """Groups under way and carried over."""


@dataclass(frozen=True, slots=True)
class Start(Generic[T]):
    """Begin a rollout, or go on after the tokens that it has."""

    rollout: Rollout[T]


@dataclass(frozen=True, slots=True)
class Abort(Generic[T]):
    """Stop rollouts under way; each ends with what it made, or whole if it was too late.

    The same one may be named twice and still ends once.
    """

    rollouts: Sequence[Rollout[T]]


@dataclass(frozen=True, slots=True)
class Train(Generic[T]):
    """Update the weights."""

    batch: Sequence[Group[T]]


@dataclass(frozen=True, slots=True)
class Publish:
    """Give the engines the new weights."""

    version: int


@dataclass(frozen=True, slots=True)
class Settled(Generic[T]):
    """A group is trained, dropped or carried (its `usage`), and nothing more becomes of it."""

    group: Group[T]


Action = Ask | Start[T] | Abort[T] | Train[T] | Publish | Settled[T]

# -- the loop of a driver ----------------------------------------------------------------------------------------------


class Decides(Protocol[T]):
    """What answers events: a scheduler."""

    def on(self, event: Event[T]) -> list[Action[T]]:
        """What is to be done now."""
        ...


def follow(scheduler: Decides[T], event: Event[T], act: Callable[[Action[T]], Event[T] | None]) -> None:
    """Tell a scheduler and do what it answers, and so on. `act` gives the event that answers an `Ask`, else None."""
    due: Event[T] | None = event
    while due is not None:
        actions, due = scheduler.on(due), None
        for action in actions:
            due = act(action)
