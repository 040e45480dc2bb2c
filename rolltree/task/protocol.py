"""The task contract: what is asked, what answers back, what counts as right.

An interactive task is functional: a state is an immutable value and `step` returns the next one, so snapshot, restore
and fork cost nothing. Foreign environments that cannot do this are wrapped by a replaying adapter whose state is the
list of actions so far and which verifies on replay that the observations are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

Split = Literal["train", "test"]

Observation = Any
"""What a policy is shown: a text, or whatever else its channel encodes (a class label, an array)."""
Artefact = Any
"""What a policy has made, as its channel decodes it: a text, an image."""


@dataclass(frozen=True, slots=True)
class Item:
    """One question. `id` is stable over runs and names it in groups, ledgers and replay."""

    id: str
    prompt: Observation
    answer: Any
    """What the verifier needs; None = nobody knows: it can be asked with a frozen policy, and is refused by
    training."""
    level: int = 0
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


EXPECTED = "expected"
"""Key in a tree's notes: the answer that its item asks for, for people to read."""
_SHORT = 400


def expected(item: Item) -> dict[str, str]:
    """What a tree notes of its item's answer; nothing where that is no short text or number."""
    given = item.answer
    text = str(given) if isinstance(given, str | int | float) else ""
    return {EXPECTED: text} if 0 < len(text) <= _SHORT else {}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a finished rollout."""

    score: float
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    """Named components (format, validity, subgoals, …); recorded as scores of the leaf."""
    answer: str | None = None
    """The final answer in normal form: what majority votes and diversity counts compare. None = none was given."""
    why: str = ""
    solved: bool | None = None
    """Whether this counts as right, where that is not the same as a score of 1 (several rewards, one threshold)."""


@dataclass(frozen=True, slots=True)
class Said:
    """A part of one of the policy's earlier turns, from character `start` to `stop`."""

    turn: int
    """Counted from 0 over all turns of the rollout, in the order of time."""
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Reply:
    """What the environment says to one action of the policy."""

    text: Observation
    state: Any
    done: bool = False
    """Whether the episode is over (the policy does not speak again)."""
    reward: float = 0.0
    """The step's own reward; recorded as `step_reward` on the env node."""
    state_key: str | None = None
    """Hashable name of the state the next action is taken in; the same state has the same key in every trajectory."""
    failed: bool = False
    """Whether the call failed (a tool error the policy can see). A crash of ours is raised instead."""
    aside: tuple[str | Said, ...] | None = None
    """A context of its own, whole: what the policy says to it is the next turn, and comes before the answer to this
    one. Given texts, and what the policy said before; `text` is then not written anywhere."""
    how: str = ""
    """How that context came about, in a word; for events and pages."""
    parts: Mapping[str, float] = field(default_factory=dict[str, float])


@runtime_checkable
class Task(Protocol):
    """A source of items with an exact verifier. Everything is deterministic given the item, the state and the text."""

    @property
    def name(self) -> str:
        """Name in the registry."""
        ...

    @property
    def level(self) -> int:
        """The difficulty in use."""
        ...

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings at which the policy hands over (to the environment, or because the answer stands)."""
        ...

    @property
    def max_tokens(self) -> int:
        """Default limit of policy tokens per rollout (over all turns)."""
        ...

    @property
    def max_turns(self) -> int:
        """Most environment steps per rollout; 0 = not interactive."""
        ...

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Items without end, deterministic in (split, seed, level). Train and test never share an item."""
        ...

    def start(self, item: Item) -> tuple[Any, str | None]:
        """First state and its key; (None, None) for tasks without an environment."""
        ...

    async def step(self, item: Item, state: Any, text: Artefact) -> Reply:
        """The environment's answer to the policy's latest turn. Never called when max_turns is 0."""
        ...

    async def verify(self, item: Item, state: Any, text: Artefact) -> Verdict:
        """Judge a finished rollout: `text` is what it made of everything after the prompt, `state` the last state."""
        ...


@runtime_checkable
class AsksItself(Protocol):
    """A task played by a program, which says itself what the policy reads first: the prompt of an item is known once
    the program was started on it."""

    @property
    def inner(self) -> Task:
        """The task that is played: its items, as the program is given them."""
        ...

    def asked(self, item: Item) -> Item:
        """An item of `inner` with what the program asks first as its prompt. It may block."""
        ...


@runtime_checkable
class ReadsAnswers(Protocol):
    """A task that reads a final answer off a text without knowing the right one: what votes compare on items that have
    no answer."""

    def answer_in(self, item: Item, text: Artefact) -> str | None:
        """The answer in normal form; None where there is none."""
        ...


ActionKind = Literal["plain", "destructive", "terminating"]
"""Whether an action can be undone, cannot, or ends the episode."""


@dataclass(frozen=True, slots=True)
class ActionAbout:
    """What is known of an action before it is done."""

    name: str
    """The same for texts that do the same."""
    kind: ActionKind = "plain"
    possible: bool = True


@runtime_checkable
class DescribesActions(Protocol):
    """A task that tells what an action is without doing it: what searches over actions merge, order and refuse by."""

    def about_action(self, item: Item, state: Any, text: Artefact) -> ActionAbout:
        """Of the text in the state."""
        ...


def about_action(task: Task, item: Item, state: Any, text: Artefact) -> ActionAbout:
    """The same of any task: a plain action with its own text as its name, where the task says nothing."""
    if isinstance(task, DescribesActions):
        return task.about_action(item, state, text)
    return ActionAbout(str(text))


def measured(task: Task) -> frozenset[str] | None:
    """The parts that every verdict of the task has; None where nobody knows before it judges.

    A task that knows them has an attribute `measures`.
    """
    return getattr(task, "measures", None)


def distinct(task: Task, split: Split) -> int | None:
    """How many items a split has, where the task is finite: its stream gives each of them once before any again.

    A finite task has a method `count(split)`; None for items without end.
    """
    count = getattr(task, "count", None)
    return None if count is None else count(split)


def spoken_by(task: Task, codec: Any) -> Task:
    """The task as the policy with this codec is asked: one with a chat template asks in it.

    A task that depends on the policy's tokenizer has a method `spoken_by(tokenizer)`; every other is itself.
    """
    bind = getattr(type(task), "spoken_by", None)  # not what a wrapper passes on: it would be lost
    return task if bind is None else bind(task, getattr(codec, "tokenizer", None))


def about(task: Task) -> str:
    """What a finite task says of itself before a run: how many items, which are held out, what judges them."""
    return str(getattr(task, "about", ""))
