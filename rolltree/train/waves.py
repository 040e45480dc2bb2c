"""The control's plans under way beside one another, and how they come back after a restart.

A plan of one step's prompts is a wave. Under a schedule the next wave begins before the last one is over, so plans see
what has been delivered by then. Plans are generators, which cannot be written down: written are the control's state
when an old enough wave began, and every answer given since. Giving the same answers again brings all plans back to
where they stood.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from rolltree.control.following import Following, Name, Round
from rolltree.control.order import ControlError, Delivery, Order
from rolltree.control.plan import Step
from rolltree.train.collect import Cursor
from rolltree.train.config import TrainError
from rolltree.train.gathering import Gathering
from rolltree.train.steering import Steering, allocation

EVERY = 64
"""Waves between two copies of the control's state. All plans end before one is taken: it knows nothing of plans."""
FRUITLESS = 32
"""Waves in a row without an order after which a run ends."""
CAME = tuple(f.name for f in fields(Delivery) if f.name != "order")


@dataclass(slots=True, eq=False)
class Sheet:
    """A round's orders, and what was delivered for them so far."""

    wave: Wave
    name: Name
    orders: Sequence[Order]
    new: frozenset[int]
    """Places that its plan had not asked for before."""
    came: list[Delivery | None]


@dataclass(slots=True, eq=False)
class Wave:
    """A plan under way."""

    number: int
    following: Following
    gathering: Gathering
    prompts: int
    """How many it is to order."""
    sheets: dict[Name, Sheet] = field(default_factory=dict[Name, Sheet])
    """Rounds without an answer."""
    places: set[int] = field(default_factory=set[int])
    """Places it has ordered teaching rollouts for."""


@dataclass(slots=True, eq=False)
class Waves:
    """All plans of a run under a schedule.

    `step` makes what a plan may use, from its number, from 0, and the prompts it is to order.
    """

    steering: Steering
    cursor: Cursor
    prompts: int
    """Of the next plan."""
    step: Callable[[int, int], tuple[Step, Gathering]]
    begun: int = 0
    live: dict[int, Wave] = field(default_factory=dict[int, Wave])
    _journal: list[Any] = field(default_factory=list[Any])
    """Since the copy: how many prompts where a wave began, else (wave, round, what came)."""
    _copy: tuple[int, dict[str, Any]] = (0, {})
    """The state before the wave with this number began, when no other one was under way."""
    _numbers: list[dict[str, float]] = field(default_factory=list[dict[str, float]])

    @property
    def filling(self) -> bool:
        """Whether the next plan has to wait: for the latest one, which may still name prompts, or for all of them."""
        wave = self.live.get(self.begun - 1)
        all_ = bool(self.live) and self.begun % EVERY == 0
        return all_ or (wave is not None and len(wave.places) < wave.prompts)

    def begin(self) -> list[Sheet]:
        """The first rounds of the next plan that orders anything."""
        for _ in range(FRUITLESS):
            if sheets := self._begin():
                return sheets
        raise ControlError(
            f"the control {type(self.steering.control).__name__} ordered nothing in {FRUITLESS} steps; choose another "
            "one, or another task"
        )

    def deliver(self, sheet: Sheet, index: int, delivery: Delivery) -> list[Sheet]:
        """What came of one order; once its round is complete, the rounds that follow from it."""
        assert sheet.came[index] is None, "an order is delivered once"
        sheet.came[index] = delivery
        came = [d for d in sheet.came if d is not None]
        if len(came) < len(sheet.came):
            return []
        self._journal.append((sheet.wave.number, sheet.name, [_told(d) for d in came]))
        return self._answer(sheet, came)

    def told(self) -> dict[str, float]:
        """Where the budget of the plans went that ended since the last call: means over them."""
        ended, self._numbers = self._numbers, []
        names = {name for numbers in ended for name in numbers}
        return {name: float(np.mean([n[name] for n in ended if name in n])) for name in sorted(names)}

    def state(self) -> dict[str, Any]:
        """All of it, as `rolltree.tree.values` stores it."""
        first, copy = self._copy
        open_ = [
            (wave.number, sheet.name, [None if d is None else _told(d) for d in sheet.came])
            for wave in self.live.values() for sheet in wave.sheets.values()
        ]  # fmt: skip
        return {
            "first": first, "copy": copy, "journal": self._journal, "open": open_, "numbers": self._numbers,
            "now": self._now(),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to that; refuses a control that does not repeat itself."""
        copy: dict[str, Any] = state["copy"]
        self.begun, self.live = int(state["first"]), {}
        self.cursor.rewind(int(copy["taken"]))
        self.steering.load_state_dict(copy["control"])
        for entry in state["journal"]:
            if isinstance(entry, int):
                self.prompts = entry
                self._begin()
                continue
            number, name, came = entry
            sheet = self.live[number].sheets[tuple(name)]
            self._journal.append((number, tuple(name), came))
            self._answer(sheet, [_delivery(o, c) for o, c in zip(sheet.orders, came, strict=True)])
        for number, name, came in state["open"]:
            sheet = self.live[number].sheets[tuple(name)]
            sheet.came = [None if c is None else _delivery(o, c) for o, c in zip(sheet.orders, came, strict=True)]
        self._numbers = list(state["numbers"])
        if self._now() != state["now"]:
            raise TrainError(
                f"the control {type(self.steering.control).__name__} does not come back to the state it was saved in "
                "when it is given the same answers; let it draw from `step.rng` alone, or train without a schedule"
            )

    def _begin(self) -> list[Sheet]:
        if self.begun % EVERY == 0:
            self._copy, self._journal = (self.begun, self._now()), []
        self._journal.append(self.prompts)
        step, gathering = self.step(self.begun, self.prompts)
        wave = Wave(
            self.begun, Following(self.steering.control.plan(step, self.steering.state), gathering.grade), gathering,
            self.prompts,
        )  # fmt: skip
        self.live[wave.number] = wave
        self.begun += 1
        return self._go_on(wave, wave.following.begin())

    def _answer(self, sheet: Sheet, came: Sequence[Delivery]) -> list[Sheet]:
        wave = sheet.wave
        del wave.sheets[sheet.name]
        wave.gathering.note(came)
        return self._go_on(wave, wave.following.answer(sheet.name, came))

    def _go_on(self, wave: Wave, rounds: Sequence[Round]) -> list[Sheet]:
        sheets: list[Sheet] = []
        for name, orders in rounds:
            asked = {order.prompt.place for order in orders if order.for_training}
            sheets.append(Sheet(wave, name, orders, frozenset(asked - wave.places), [None] * len(orders)))
            wave.places |= asked
        wave.sheets |= {sheet.name: sheet for sheet in sheets}
        if wave.following.over:
            del self.live[wave.number]
            self._numbers.append(allocation(wave.following.out, wave.gathering.bands))
        return sheets

    def _now(self) -> dict[str, Any]:
        return {"taken": self.cursor.taken, "control": self.steering.state_dict()}


def _told(delivery: Delivery) -> list[Any]:
    return [getattr(delivery, name) for name in CAME]


def _delivery(order: Order, told: Sequence[Any]) -> Delivery:
    return replace(Delivery(order, ()), **dict(zip(CAME, told, strict=True)))
