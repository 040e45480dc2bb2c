"""Briefs: texts that are put beside a prompt, each in a slot that says where it came from and what becomes of it.

A slot is a place with a name: a hint, a digest of an earlier attempt, notes from a bank. Its tokens are known
(`laid`), so what it holds can be shown without being trained on, trained on as well, or shown to the rollouts and left
out when they are trained (`hidden`). `without` takes slots away: that is how an evaluation asks what they were worth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rolltree.errors import RolltreeError
from rolltree.tree.node import Array, as_actions, join_actions


class BriefError(RolltreeError, ValueError):
    """A brief that cannot be laid out: names the slot and the way out."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One text beside the prompt."""

    name: str
    text: str
    sources: tuple[str, ...] = ()
    """What it was made of, as "tree/node" (see `source_of`)."""
    before: bool = False
    """In front of the prompt (examples, notes) instead of after it (hints, budgets)."""
    joins: bool = False
    """Whether it is the beginning of the answer, so that the verifier reads it in front of what the policy wrote."""
    hidden: bool = False
    """Whether the rollouts are trained as if the text had not been there; their sampling distribution
    (`sampling_logprob`) stays the one they were drawn from. Otherwise it stands in the tree as a hint node."""
    trainable: bool = False
    """Whether the text itself is trained on: its actions are forced ones that carry the policy's log-prob."""

    def __post_init__(self) -> None:
        if self.hidden and (self.joins or self.trainable):
            raise BriefError(
                f"slot {self.name!r}: hidden text can neither begin the answer nor be trained on; show it instead"
            )
        if self.before and (self.joins or self.trainable):
            raise BriefError(
                f"slot {self.name!r}: text before the prompt neither begins the answer nor is trained on; put it after"
            )


@dataclass(frozen=True, slots=True)
class Brief:
    """Slots in the order they are read."""

    slots: tuple[Slot, ...] = ()

    def __post_init__(self) -> None:
        names = [slot.name for slot in self.slots]
        if len(set(names)) < len(names):
            raise BriefError(f"two slots share a name: {', '.join(names)}; give each its own")
        joins = [slot.joins for slot in self.slots if not slot.before]
        if joins != sorted(joins):
            raise BriefError(f"the slots {', '.join(names)} put text behind the beginning of the answer; put that last")

    def __iter__(self) -> Iterator[Slot]:
        return iter(self.slots)

    def __getitem__(self, name: str) -> Slot:
        for slot in self.slots:
            if slot.name == name:
                return slot
        raise BriefError(f"this brief has no slot {name!r}; it has {', '.join(s.name for s in self.slots) or 'none'}")

    def without(self, *names: str) -> Brief:
        """The brief with these slots taken away."""
        for name in names:
            self[name]
        return Brief(tuple(slot for slot in self.slots if slot.name not in names))

    def around(self, prompt: str) -> str:
        """The prompt with all texts."""
        before = "".join(slot.text for slot in self.slots if slot.before)
        return before + prompt + "".join(slot.text for slot in self.slots if not slot.before)

    @property
    def text(self) -> str:
        """All texts, without the prompt."""
        return "".join(slot.text for slot in self.slots)

    @property
    def lead(self) -> str:
        """The beginning of the answer; "" where no slot joins it."""
        return "".join(slot.text for slot in self.slots if slot.joins)

    @property
    def shown(self) -> tuple[Slot, ...]:
        """Slots that stand in the tree behind the prompt."""
        return tuple(slot for slot in self.slots if not slot.hidden)

    @property
    def hides(self) -> bool:
        """Whether rollouts are trained without some of it."""
        return any(slot.hidden for slot in self.slots)

    @property
    def trains(self) -> bool:
        """Whether some of it is trained on."""
        return any(slot.trainable for slot in self.slots)

    def laid(self, read: Callable[[str], Any], prompt: Sequence[int] | Array) -> Laid:
        """Tokens of the prompt with all texts; `read` encodes a text."""
        order = [*(s for s in self.slots if s.before), None, *(s for s in self.slots if not s.before)]
        parts, spans, at = list[Array](), dict[str, tuple[int, int]](), 0
        for slot in order:
            ids = as_actions(prompt if slot is None else read(slot.text))
            if slot is not None:
                spans[slot.name] = (at, at + len(ids))
            parts.append(ids)
            at += len(ids)
        return Laid(join_actions(parts), spans)

    def noted(self, laid: Laid) -> list[dict[str, Any]]:
        """What a tree notes of it: names, token spans and sources."""
        return [{"slot": s.name, "span": list(laid.spans[s.name]), "sources": list(s.sources)} for s in self.slots]


@dataclass(frozen=True, slots=True)
class Laid:
    """A prompt with its slots, in tokens."""

    ids: Array
    spans: dict[str, tuple[int, int]]
    """First token of each slot, and the one behind its last, by name."""


def brief(text: str, name: str = "ask", **fields: Any) -> Brief:
    """A brief of one slot."""
    return Brief((Slot(name, text, **fields),))


def source_of(tree: str, node: int) -> str:
    """How a slot names what it was made of."""
    return f"{tree}/{node}"
