"""From a plan's orders to groups of the scheduler, and from what they became back to the plan.

What a plan orders of a prompt becomes a group, or a further part of one. When a part is over it is gathered into the
prompt's tree and delivered; the plan may then ask for more. A group is let go of, to be trained or dropped, when
nothing more will be asked of its prompt.

It calls nobody: the executor asks it what begins next, which part of a group is over and what follows from a delivery.
The answers are events for the scheduler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rolltree.control.following import Name
from rolltree.control.hints import solver
from rolltree.control.order import Delivery
from rolltree.control.schedule import Ask, EmptyPlan, Event, Extended, Group, Offer, Offered, Pressing, Released, Woken
from rolltree.generate.aside import join
from rolltree.generate.random import Stream, mix
from rolltree.recipe.recipe import Parts
from rolltree.rollout.config import ControlState
from rolltree.rollout.group_builder import MEASURED, GroupBuilder
from rolltree.rollout.ordered_items import SpokenStep
from rolltree.rollout.plan_runs import PlanRuns, RoundState
from rolltree.rollout.slots import PromptGroup, RolloutSlot, RoundSlots, Surroundings
from rolltree.rollout.units import Unit
from rolltree.rollout.widths import width_of
from rolltree.task.protocol import Item


class GroupRequest(NamedTuple):
    """Orders of one prompt that become a group, or a further part of one."""

    round: RoundState
    indices: tuple[int, ...]


@dataclass(slots=True, eq=False)
class RoundRequests:
    """Groups that a round of a plan asks for."""

    requests: deque[GroupRequest]
    together: bool
    """Whether groups are held until the plan has seen all of them: then either none of them begins or all do."""
    begun: bool = False


@dataclass(slots=True, eq=False)
class GroupQueue:
    """One run's plans and the groups that they asked for."""

    around: Surroundings
    unit: Unit
    control: ControlState
    lockstep: bool
    """Whether one plan follows the other; else they overlap."""
    plans: PlanRuns = field(init=False)
    queue: deque[RoundRequests] = field(default_factory=deque[RoundRequests])
    """What plans asked for and has not begun."""
    groups: dict[tuple[int, int], Group[PromptGroup]] = field(default_factory=dict[tuple[int, int], Group[PromptGroup]])
    """Groups for training that are not settled, by plan and place."""
    _given_up: list[Group[PromptGroup]] = field(default_factory=list[Group[PromptGroup]])
    """Groups that were given up before their plans knew what came of them."""
    _width: int = 1
    """Rollouts of a prompt for which a plan asks no number."""
    _solve: Callable[[Item], str] | None = None
    """What gives a right answer to an item of the task."""
    _slots: dict[tuple[int, Name], RoundSlots] = field(default_factory=dict[tuple[int, Name], RoundSlots])

    def __post_init__(self) -> None:
        around = self.around
        refills = around.parts.rounds if self.lockstep else None
        self.plans = PlanRuns(
            self.control, around.cursor, around.parts.prompts or around.config.prompts, self._step, refills
        )
        self._width, self._solve = width_of(around.parts.strategy) or 1, solver(around.task)

    def stage(self, parts: Parts, unit: Unit) -> None:
        """Plans and rollouts that begin from now on are of these parts."""
        self.around, self.unit = replace(self.around, parts=parts), unit
        self.plans.refills = parts.rounds if self.lockstep else None
        self._width = width_of(parts.strategy) or 1

    # -- what the scheduler asks -----------------------------------------------------------------------------------

    def offered(self, ask: Ask, now: float) -> Offered[PromptGroup]:
        """The next group that a plan asks for; none while it has to wait."""
        offer = self._offer(ask)
        return Offered(offer, self.pressing, now)

    def _offer(self, ask: Ask) -> Offer[PromptGroup] | EmptyPlan | None:
        if not self.queue:
            if self.plans.filling or (self.lockstep and ask.unfinished):
                return None
            self._ask(self.plans.begin())
            if not self.queue:
                return EmptyPlan(self.plans.begun - 1)
        asked = self.queue[0]
        waits = asked.together and not asked.begun and not ask.idle and not self.lockstep
        if waits and ask.room < len(asked.requests):
            return None
        asked.begun = True
        round, indices = asked.requests.popleft()
        if not asked.requests:
            self.queue.popleft()
        first = round.orders[indices[0]]
        group = PromptGroup(round.run.number, first.prompt.place, first.for_training)
        for part, i in enumerate(indices):
            group.slots[part] = self.slot(round, i)
        sizes = [self.unit.size(round.orders[i]) for i in indices]
        return Offer(group, sizes, open=True, plan=round.run.number)

    @property
    def pressing(self) -> bool:
        """Whether the next group belongs to some that have begun; in lock-step all that a plan asks for begins."""
        return bool(self.queue) and (self.lockstep or (self.queue[0].together and self.queue[0].begun))

    def refusal(self, group: PromptGroup) -> str | None:
        """Why a finished group must not be trained on; None = it may."""
        if not group.for_training:
            return MEASURED
        return next((why for f in self.around.parts.filters if (why := f(group.tree))), None)

    def begun(self, group: Group[PromptGroup]) -> None:
        """A group is under way: more may be asked for its prompt."""
        mine = group.item
        if mine.for_training:
            self.groups[mine.plan, mine.place] = group

    def settled(self, group: Group[PromptGroup]) -> None:
        """A group is trained, dropped or carried; a dropped one's plan may not know yet (`given_up`)."""
        mine = group.item
        if self.groups.get((mine.plan, mine.place)) is group:  # one that only measured shares its place with another
            del self.groups[mine.plan, mine.place]
        if group.usage.startswith("dropped"):
            self._given_up.append(group)

    # -- what plans ask for ----------------------------------------------------------------------------------------

    def _wait(self, round: RoundState, indices: Iterable[int]) -> None:
        """Let these orders of a round wait for their turn, in groups of one prompt each."""
        requests: dict[int, list[int]] = {}
        for i in indices:
            order = round.orders[i]
            requests.setdefault(order.prompt.place if order.for_training else -1 - i, []).append(i)
        if not requests:
            return
        # Groups that stay open for these orders keep their places in admission: who waits behind them waits for ever.
        due = any(plan == round.run.number and g.open for (plan, _), g in self.groups.items())
        held = due or any(o.for_training and not o.last for o in round.orders)
        asked = RoundRequests(deque(GroupRequest(round, tuple(r)) for r in requests.values()), held, begun=due)
        self.queue.insert(sum(a.begun for a in self.queue) if due else len(self.queue), asked)

    def waiting(self) -> list[Any]:
        """Which rounds wait for their turn, in order, and whether some of their groups have begun already."""
        rounds = [(asked.requests[0].round, asked.begun) for asked in self.queue]
        return [[round.run.number, list(round.name), begun] for round, begun in rounds]

    def wait_again(self, waiting: Sequence[Any], groups: Sequence[Group[PromptGroup]]) -> Pressing:
        """After a restart: what plans had asked for and no group had begun waits for its turn, as it did before."""
        self.groups = {(g.item.plan, g.item.place): g for g in groups if g.item.for_training}
        begun = {(s.round.run.number, s.round.name, s.index) for g in groups for s in g.item.slots.values()}
        for run in self.plans.live.values():
            for name, round in run.rounds.items():
                missing = (i for i, d in enumerate(round.delivered) if d is None and (run.number, name, i) not in begun)
                self._wait(round, missing)
        turn = {(number, tuple(name)): (place, begun) for place, (number, name, begun) in enumerate(waiting)}
        queue, self.queue = self.queue, deque[RoundRequests]()
        for asked in sorted(queue, key=lambda asked: turn[_key(asked)][0]):
            asked.begun = turn[_key(asked)][1]
            self.queue.append(asked)
        return Pressing(self.pressing)

    def _ask(self, rounds: list[RoundState]) -> list[Extended[PromptGroup]]:
        """New rounds of a plan. The groups of prompts that it had asked before grow, or were given up."""
        grow: list[Extended[PromptGroup]] = []
        while rounds:
            round = rounds.pop(0)
            known = [i for i, o in enumerate(round.orders) if o.for_training and o.prompt.place not in round.new]
            self._wait(round, sorted({*range(len(round.orders))} - {*known}))
            more: dict[int, list[int]] = {}
            for i in known:
                more.setdefault(round.orders[i].prompt.place, []).append(i)
            for place, indices in more.items():
                group = self.groups.get((round.run.number, place))
                if group is not None:
                    parts = len(group.wanted) + sum(len(g.sizes) for g in grow if g.group is group)
                    for part, i in enumerate(indices, parts):
                        group.item.slots[part] = self.slot(round, i)
                    grow.append(Extended(group, [self.unit.size(round.orders[i]) for i in indices]))
                    continue
                for i in indices:
                    rounds += self.plans.deliver(round, i, Delivery(round.orders[i], (), kept=False))
        return grow

    # -- what became of groups -------------------------------------------------------------------------------------

    def given_up(self) -> list[Group[PromptGroup]]:
        """Groups that were dropped since the last call: their plans may not know yet."""
        given_up, self._given_up = self._given_up, []
        return given_up

    def over(self, group: Group[PromptGroup], growing: Container[int]) -> int | None:
        """The first part of a group that is over and has to be gathered; `growing` are parts that still change."""
        for part, slot in sorted(group.item.slots.items()):
            if slot.rescoring:
                continue
            if (group.got[part] == group.wanted[part] or group.usage) and part not in growing:
                return part
            if not group.usage:
                return None
        return None

    def gather(self, group: Group[PromptGroup], part: int) -> tuple[Delivery, Coroutine[Any, Any, None] | None]:
        """Put a part that is over into the prompt's tree; with it, the log-probs that have to be read again first."""
        mine = group.item
        slot, members = mine.slots[part], [r for r in group.members if r.part == part]
        self.unit.finalize(slot, [r for r in members if not group.usage or r.usage != group.usage])
        builder = self.plans.live[mine.plan].builder
        setting = slot.hand.setting
        apart = setting.asides.pop(slot.tree.id, [])
        if group.usage:
            join(slot.tree, apart, setting.clock())
            slot.tree.item = slot.order.prompt.item.id
            mine.discarded.append(slot.tree)
            return replace(builder.delivery(slot.order, slot.tree), kept=False), None
        seen = () if slot.order.probe is None else slot.flight.outcomes(slot.tree)
        delivery, heads = builder.gather(slot.order, slot.tree, seen, slot.round.name[-1])
        join(builder.groups[mine.place] if mine.for_training else slot.tree, apart, setting.clock())
        mine.gathered = builder.groups[mine.place] if mine.for_training else slot.tree
        slot.rescoring = bool(heads)
        return delivery, builder.rescore(slot.order, heads) if heads else None

    def delivered(self, group: Group[PromptGroup], part: int, delivery: Delivery) -> list[Event[PromptGroup]]:
        """Answer the plan: what it asks for next grows, and what it will ask nothing more of is released."""
        mine = group.item
        slot = mine.slots.pop(part)
        mine.discarded += slot.failed_trees
        run, name = slot.round.run, slot.round.name
        rounds = self.plans.deliver(slot.round, slot.index, delivery)
        if name not in run.rounds:
            del self._slots[run.number, name]
        grow = self._ask(rounds)
        closed, over = run.following.closed, run.following.over
        release = [] if mine.for_training else [group]
        for (number, place), other in self.groups.items():
            if number == run.number and other.open and not other.item.slots and (over or place in closed):
                release.append(other)
        released = [Released(g, not g.usage and self.refusal(g.item) is not None) for g in release]
        return [*grow, Pressing(self.pressing), *released, Woken()]

    # -- where it grows --------------------------------------------------------------------------------------------

    def slot(self, round: RoundState, index: int) -> RolloutSlot:
        """Where an order's rollouts grow."""
        key = round.run.number, round.name
        if key not in self._slots:
            self._slots[key] = self.around.round(round)
        return self._slots[key].slot(index)

    def _step(self, number: int, prompts: int) -> tuple[SpokenStep, GroupBuilder]:
        """What the plan with this number may use."""
        a = self.around
        builder = GroupBuilder(a.engine, a.task, a.budget, a.parts.filters, self.control.history, number + 1)
        rng = Stream(mix(a.config.seed, "step", number + 1)).child("control").generator()
        chat = getattr(a.task, "chat", None)  # a chat task's template
        history = self.control.history
        step = SpokenStep(number + 1, prompts, self._width, rng, a.cursor, history, self._solve, speaker=chat)
        return step, builder


def _key(asked: RoundRequests) -> tuple[int, Name]:
    """Which round it is of."""
    round = asked.requests[0].round
    return round.run.number, round.name
