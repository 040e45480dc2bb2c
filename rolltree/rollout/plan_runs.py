"""The control's plans under way beside one another, and how they come back after a restart.

Each step's prompts are asked for by a plan of their own. In lock-step one plan follows the other, and samples others in
place of prompts that the filters drop (`refilled`). Under a schedule that overlaps, the next plan begins before the
last one is over, so plans see what has been delivered by then.

Plans are generators, which cannot be written down. Written are the control's state when an old enough plan began, and
every answer given since. Giving the same answers again brings all plans back to where they stood.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from rolltree.control.following import Following, Name, Round
from rolltree.control.order import ControlError, Delivery, Order
from rolltree.control.plan import Step, refilled
from rolltree.rollout.config import ControlState, RolloutError
from rolltree.rollout.cursor import Cursor
from rolltree.rollout.group_builder import GroupBuilder
from rolltree.rollout.underway import allocation

STATE_COPY_EVERY = 64
"""Plans between two copies of the control's state. All plans end before one is taken: it knows nothing of plans."""
MAX_EMPTY_PLANS = 32
"""Plans in a row that order nothing to train on after which a run ends, where plans overlap."""
DELIVERED = tuple(f.name for f in fields(Delivery) if f.name != "order")


@dataclass(slots=True, eq=False)
class RoundState:
    """A round's orders, and what was delivered for them so far."""

    run: PlanRun
    name: Name
    orders: Sequence[Order]
    new: frozenset[int]
    """Places that its plan had not asked for before."""
    delivered: list[Delivery | None]


@dataclass(slots=True, eq=False)
class PlanRun:
    """A plan under way."""

    number: int
    following: Following
    builder: GroupBuilder
    prompts: int
    """How many it is to order."""
    rounds: dict[Name, RoundState] = field(default_factory=dict[Name, RoundState])
    """Rounds without an answer."""
    asked: int = 0
    """Rounds so far."""
    places: set[int] = field(default_factory=set[int])
    """Places it has ordered rollouts for training for."""


@dataclass(slots=True, eq=False)
class PlanRuns:
    """All plans of a run.

    `step` makes what a plan may use, from its number, from 0, and the prompts it is to order.
    """

    control: ControlState
    cursor: Cursor
    prompts: int
    """Of the next plan."""
    step: Callable[[int, int], tuple[Step, GroupBuilder]]
    refills: int | None = None
    """In lock-step: most rounds of sampling in a step while filters leave it short of prompts. None = plans overlap,
    and the next one replaces what is dropped."""
    begun: int = 0
    live: dict[int, PlanRun] = field(default_factory=dict[int, PlanRun])
    _journal: list[Any] = field(default_factory=list[Any])
    """Since the copy: how many prompts where a plan began, else (plan, round, what was delivered)."""
    _copy: tuple[int, dict[str, Any]] = (0, {})
    """The state before the plan with this number began, when no other one was under way."""
    _empty: int = 0
    """Plans in a row that ended and had ordered nothing to train on."""
    _ended: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    """Numbers of the plans that are over."""

    @property
    def filling(self) -> bool:
        """Whether the next plan has to wait: for the latest one, which may still name prompts, or for all of them."""
        if self.refills is not None:
            return bool(self.live)
        latest = self.live.get(self.begun - 1)
        all_ = bool(self.live) and self.begun % STATE_COPY_EVERY == 0
        return all_ or (latest is not None and len(latest.places) < latest.prompts)

    def begin(self) -> list[RoundState]:
        """The first rounds of the next plan; where plans overlap, of the next one that orders anything."""
        if self.refills is not None:
            return self._begin()
        while not (rounds := self._begin()):
            pass
        return rounds

    def deliver(self, round: RoundState, index: int, delivery: Delivery) -> list[RoundState]:
        """What came of one order; once its round is complete, the rounds that follow from it."""
        assert round.delivered[index] is None, "an order is delivered once"
        round.delivered[index] = delivery
        there = [d for d in round.delivered if d is not None]
        if len(there) < len(round.delivered):
            return []
        # What was given up is known to be dropped; the filters look at everything that the whole round came to.
        there = [round.run.builder.judged(d) if d.kept else d for d in there]
        self._journal.append((round.run.number, round.name, [_values(d) for d in there]))
        return self._answer(round, there)

    def ended_numbers(self) -> dict[str, float]:
        """Of the plans that ended since the last call: rounds in all, and means of where their budgets went."""
        ended, self._ended = self._ended, []
        names = {name for numbers in ended for name in numbers}
        # Some numbers exist in some plans only: those of an arm that was not needed every time.
        out = {name: float(np.mean([n[name] for n in ended if name in n])) for name in sorted(names)}
        return out | {"rollout/rounds": float(sum(n["rollout/rounds"] for n in ended))}

    def state(self) -> dict[str, Any]:
        """All of it, as `rolltree.tree.store.values` stores it."""
        if not self.live:
            self._copy, self._journal = (self.begun, self._now()), []
        first, copy = self._copy
        open_ = [
            (run.number, round.name, [None if d is None else _values(d) for d in round.delivered])
            for run in self.live.values() for round in run.rounds.values()
        ]  # fmt: skip
        return {
            "first": first, "copy": copy, "journal": self._journal, "open": open_, "ended": self._ended,
            "now": self._now(),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to that; refuses a control that does not repeat itself."""
        copy: dict[str, Any] = state["copy"]
        self._copy, self._journal = (int(state["first"]), copy), []
        self.begun, self.live = int(state["first"]), {}
        self.cursor.rewind(int(copy["taken"]))
        self.control.load_state_dict(copy["control"])
        for entry in state["journal"]:
            if isinstance(entry, int):
                self.prompts = entry
                self._begin()
                continue
            number, name, values = entry
            round = self.live[number].rounds[tuple(name)]
            self._journal.append((number, tuple(name), values))
            self._answer(round, [_delivery(o, v) for o, v in zip(round.orders, values, strict=True)])
        for number, name, values in state["open"]:
            round = self.live[number].rounds[tuple(name)]
            pairs = zip(round.orders, values, strict=True)
            round.delivered = [None if v is None else _delivery(o, v) for o, v in pairs]
        self._ended = list(state["ended"])
        if self._now() != state["now"]:
            raise RolloutError(
                f"the control {type(self.control.control).__name__} does not come back to the state it was saved in "
                "when it is given the same answers; let it draw from `step.rng` alone, or train without a schedule"
            )

    def _begin(self) -> list[RoundState]:
        if self.refills is not None:
            self._journal = []  # nothing is under way when this plan is over, and nothing is written down before
        elif self.begun % STATE_COPY_EVERY == 0:
            self._copy, self._journal = (self.begun, self._now()), []
        self._journal.append(self.prompts)
        step, builder = self.step(self.begun, self.prompts)
        control, state = self.control.control, self.control.state
        plan = control.plan(step, state) if self.refills is None else refilled(control, state, step, self.refills)
        run = PlanRun(self.begun, Following(plan, builder.grade), builder, self.prompts)
        self.live[run.number] = run
        self.begun += 1
        return self._go_on(run, run.following.begin())

    def _answer(self, round: RoundState, deliveries: Sequence[Delivery]) -> list[RoundState]:
        run = round.run
        del run.rounds[round.name]
        run.builder.note(deliveries)
        return self._go_on(run, run.following.answer(round.name, deliveries))

    def _go_on(self, run: PlanRun, asked: Sequence[Round]) -> list[RoundState]:
        rounds: list[RoundState] = []
        for name, orders in asked:
            places = {order.prompt.place for order in orders if order.for_training}
            rounds.append(RoundState(run, name, orders, frozenset(places - run.places), [None] * len(orders)))
            run.places |= places
        run.rounds |= {round.name: round for round in rounds}
        run.asked += len(rounds)
        if run.following.over:
            del self.live[run.number]
            self._empty = 0 if run.places else self._empty + 1
            if self._empty == MAX_EMPTY_PLANS and self.refills is None:
                raise ControlError(
                    f"the control {type(self.control.control).__name__} ordered nothing to train on in "
                    f"{MAX_EMPTY_PLANS} steps; choose another one, or another task"
                )
            self._ended.append(allocation(run.following.out, run.builder.bands) | {"rollout/rounds": float(run.asked)})
        return rounds

    def _now(self) -> dict[str, Any]:
        return {"taken": self.cursor.taken, "control": self.control.state_dict()}


def _values(delivery: Delivery) -> list[Any]:
    return [getattr(delivery, name) for name in DELIVERED]


def _delivery(order: Order, values: Sequence[Any]) -> Delivery:
    return replace(Delivery(order, ()), **dict(zip(DELIVERED, values, strict=True)))
