"""What is scheduled: rollouts, in groups of one prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Self, TypeVar

T = TypeVar("T")
"""What a group is about: the scheduler never looks at it."""


class Segment(NamedTuple):
    """Tokens made in one piece under one version of the weights, as the engine reports them."""

    version: int
    tokens: int


class Offer(NamedTuple, Generic[T]):
    """What the next group is to be."""

    item: T
    sizes: Sequence[int]
    """Rollouts of each part."""
    open: bool = False
    """Whether more may be asked for later; such a group must be released."""
    plan: int = 0
    """The plan that asks for it, from 0."""


class EmptyPlan(NamedTuple):
    """In place of an offer: the next plan asks for nothing."""

    plan: int


@dataclass(slots=True, eq=False)
class Rollout(Generic[T]):
    """One sample of a prompt, over all its continuations."""

    id: int
    group: Group[T]
    index: int
    """Its place in the group; substitutes of failed rollouts get a place of their own."""
    part: int = 0
    """Which of the group's parts it is one of."""
    segments: list[Segment] = field(default_factory=list[Segment])
    """What it has."""
    masked: int = 0
    """How many of its first tokens are context only."""
    stops: int = 0
    """How often it was stopped."""
    done: bool = False
    usage: str = ""
    """`trained`, `failed`, `carried` or `dropped: RULE`; "" while it is not settled. Set exactly once."""

    @property
    def tokens(self) -> int:
        """How many tokens it has."""
        return sum(s.tokens for s in self.segments)

    def shorten(self, by: int) -> None:
        """Take so many tokens off the end."""
        while by:
            version, tokens = self.segments.pop()
            cut = min(tokens, by)
            by -= cut
            if tokens > cut:
                self.segments.append(Segment(version, tokens - cut))

    def state(self) -> dict[str, Any]:
        """Itself as plain values; its group is named by whoever holds it."""
        told = {name: getattr(self, name) for name in ("id", "index", "part", "masked", "stops", "done", "usage")}
        return told | {"segments": [[s.version, s.tokens] for s in self.segments]}


@dataclass(slots=True, eq=False)
class Group(Generic[T]):
    """The rollouts of one prompt: trained together, or not at all."""

    number: int
    """In order of creation."""
    item: T
    wanted: list[int]
    """Rollouts it is trained with, part by part; a plan that looks at results asks for one part after the other."""
    born: int
    """Version when it started."""
    began: float
    """When it started, as its driver stamped it."""
    plan: int = 0
    """The plan that asked for it."""
    members: list[Rollout[T]] = field(default_factory=list[Rollout[T]])
    got: list[int] = field(default_factory=list[int])
    """How many of them there are."""
    open: bool = False
    """Whether more may be asked for: until it is released, it is not trained."""
    failed: int = 0
    recalled: bool = False
    """Whether it was stopped to be carried over."""
    collected: bool = False
    """Whether it is finished and may be taken into a batch."""
    staleness: int = -1
    """Versions between its start and its training; -1 before that."""
    usage: str = ""

    def __post_init__(self) -> None:
        self.got = self.got or [0] * len(self.wanted)

    @property
    def size(self) -> int:
        """Rollouts it is trained with."""
        return sum(self.wanted)

    @property
    def full(self) -> bool:
        """Whether all that is wanted is there."""
        return self.got == self.wanted

    @property
    def kept(self) -> list[Rollout[T]]:
        """The members that are trained."""
        return [r for r in self.members if r.done]

    def state(self) -> dict[str, Any]:
        """Itself and its members as plain values; the item is found again by whoever made it."""
        names = ("number", "born", "began", "plan", "open", "failed", "recalled", "collected")
        told = {name: getattr(self, name) for name in names}
        return told | {"wanted": [*self.wanted], "got": [*self.got], "members": [r.state() for r in self.members]}

    @classmethod
    def restored(cls, state: Mapping[str, Any], item: T) -> Self:
        """A group as `state` told it."""
        told = {name: value for name, value in state.items() if name not in ("members", "wanted", "got")}
        group = cls(item=item, wanted=list(state["wanted"]), got=list(state["got"]), **told)
        for each in state["members"]:
            rest = {name: value for name, value in each.items() if name != "segments"}
            group.members.append(Rollout(group=group, segments=[Segment(*s) for s in each["segments"]], **rest))
        return group
