"""A plan as it is followed: its rounds go out, deliveries come in whenever they are there, and it says what comes next.

Nothing here waits or grows anything, so the same machine serves a step that is fulfilled at once and plans that are
under way side by side while the weights change. Equal answers in equal order give equal rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from rolltree.control.order import ControlError, Delivery, Grades, Order
from rolltree.control.plan import Apart, Plan

Name: TypeAlias = tuple[int, ...]


class Round(NamedTuple):
    """Orders that are answered together."""

    name: Name
    """Its number in its plan; before it, those of the rounds and plans it came from."""
    orders: Sequence[Order]


@dataclass(slots=True, eq=False)
class _Strand:
    """A plan in progress: the one that is followed, or one of several side by side."""

    plan: Plan
    name: Name = ()
    above: tuple[_Strand, int] | None = None
    """What waits for it, and its place there."""
    number: int = 0
    places: set[int] = field(default_factory=set[int])
    """Of all its orders."""
    out: list[Delivery] = field(default_factory=list[Delivery])
    parts: list[list[Delivery] | None] = field(default_factory=list["list[Delivery] | None"])
    """What came of the plans it waits for."""


@dataclass(slots=True, eq=False)
class Following:
    """One plan. `grade` writes the outcomes that the plan gives, and says the deliveries again with them."""

    plan: Plan
    grade: Callable[[Grades], list[Delivery]]
    over: bool = False
    out: list[Delivery] = field(default_factory=list[Delivery])
    """All that was delivered, once it is over."""
    asked: dict[Name, Sequence[Order]] = field(default_factory=dict[Name, Sequence[Order]])
    """Rounds that have no answer yet."""
    closed: set[int] = field(default_factory=set[int])
    """Places of prompts of which nothing more will be asked."""
    _strands: dict[Name, _Strand] = field(default_factory=dict[Name, _Strand])

    def begin(self) -> list[Round]:
        """The first rounds; several where plans run side by side."""
        return self._on(_Strand(self.plan), None)

    def answer(self, name: Name, deliveries: Sequence[Delivery]) -> list[Round]:
        """What was delivered for a round, in the order of its orders; returns the rounds that follow from it."""
        del self.asked[name]
        return self._given(self._strands.pop(name), list(deliveries))

    def _given(self, strand: _Strand, answer: list[Delivery]) -> list[Round]:
        strand.out += answer
        strand.number += 1
        return self._on(strand, answer)

    def _on(self, strand: _Strand, answer: Sequence[Delivery] | None) -> list[Round]:
        while True:
            try:
                asked = next(strand.plan) if answer is None else strand.plan.send(answer)
            except StopIteration:
                return self._ended(strand)
            if isinstance(asked, Grades):
                answer = self.grade(asked)
                graded = {d.order.prompt.place: d for d in answer}
                strand.out = [d if d.order.judged else graded.get(d.order.prompt.place, d) for d in strand.out]
            elif isinstance(asked, Apart) and asked.plans:
                strand.parts = [None] * len(asked.plans)
                name = (*strand.name, strand.number)
                parts = [_Strand(plan, (*name, i), (strand, i)) for i, plan in enumerate(asked.plans)]
                return [found for part in parts for found in self._on(part, None)]
            elif isinstance(asked, Apart) or not asked:
                answer = []
                strand.number += 1
            else:
                return [self._round(strand, asked)]

    def _round(self, strand: _Strand, orders: Sequence[Order]) -> Round:
        name = (*strand.name, strand.number)
        for order in orders:
            if order.prompt.place in self.closed:
                raise ControlError(
                    f"a plan orders more of {order.prompt.uid!r} after an order that said it was the last, or after a "
                    "plan of this prompt alone was over; leave last=True out, or order from one plan"
                )
        self.closed |= {order.prompt.place for order in orders if order.last}
        strand.places |= {order.prompt.place for order in orders}
        self._strands[name], self.asked[name] = strand, orders
        return Round(name, orders)

    def _ended(self, strand: _Strand) -> list[Round]:
        if strand.above is None:
            self.over, self.out = True, strand.out
            return []
        self.closed |= strand.places
        above, place = strand.above
        above.places |= strand.places
        above.parts[place] = strand.out
        done = [part for part in above.parts if part is not None]
        # In the order of the plans, whoever came first.
        return self._given(above, [d for part in done for d in part]) if len(done) == len(above.parts) else []
