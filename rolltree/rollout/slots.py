"""Slots for a round's orders: bare trees with the prompts as they are ordered, and the hands that grow them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from rolltree.control.ledger import Budget
from rolltree.engine.protocol import Engine, Sampling
from rolltree.generate.hand import Hand
from rolltree.generate.patience import Patience
from rolltree.generate.probed import InFlight, Observed
from rolltree.generate.random import Stream, mix
from rolltree.generate.runner import check_item
from rolltree.generate.setting import Setting
from rolltree.recipe.recipe import Parts
from rolltree.rollout.config import RolloutConfig
from rolltree.rollout.cursor import Cursor
from rolltree.rollout.groups import RolloutSlot
from rolltree.rollout.ordered_items import asked_task, names_of, ordered_item
from rolltree.rollout.plan_runs import RoundState
from rolltree.rollout.widths import Ordered
from rolltree.task.protocol import Item, Task
from rolltree.tree import Forest


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all rollouts of a run share."""

    parts: Parts
    engine: Engine
    task: Task
    config: RolloutConfig
    cursor: Cursor
    budget: Budget
    clock: Callable[[], float]
    peers: Mapping[str, Engine]
    """Other policies by the actor they write as."""

    @property
    def limit(self) -> int:
        """Most policy tokens per path."""
        return self.config.max_tokens or self.task.max_tokens

    def round(self, round: RoundState) -> RoundSlots:
        """A hand for a round of a plan, in streams of randomness of its own."""
        number, config = round.run.number, self.config
        setting = Setting(
            self.engine, asked_task(self.task, round.orders), Forest(),
            Stream(mix(mix(config.seed, "step", number + 1), "round", *round.name)), self.clock, Patience(),
            Sampling(temperature=config.temperature), self.limit, peers=self.peers,
        )  # fmt: skip
        items = [ordered_item(order, i) for i, order in enumerate(round.orders)]
        return RoundSlots(self, round, items, names_of(items), Hand(setting, self.budget))


@dataclass(slots=True, eq=False)
class RoundSlots:
    """What the trees of a round share."""

    around: Surroundings
    round: RoundState
    items: list[Item]
    """As the orders ask them."""
    names: list[str]
    hand: Hand
    widths: dict[str, int | None] = field(default_factory=dict[str, "int | None"])
    flights: dict[str, InFlight] = field(default_factory=dict[str, InFlight])
    _observed: Observed = field(init=False)

    def __post_init__(self) -> None:
        self._observed = Observed(Ordered(self.around.parts.strategy, self.widths), self.flights)

    def slot(self, index: int) -> RolloutSlot:
        """A bare tree for an order."""
        around, order, item, hand = self.around, self.round.orders[index], self.items[index], self.hand
        check_item(item, around.engine, around.peers)
        tree, flight = self.round.run.builder.plant(order, item, self.names[index]), InFlight(order.probe)
        hand.setting.items[tree.id], self.widths[tree.id], self.flights[tree.id] = item, order.width, flight
        if order.limit is not None and order.limit < around.limit:
            hand = Hand(replace(hand.setting, limit=order.limit), around.budget)
        plain = order.width is None and order.probe is None
        strategy = around.parts.strategy if plain else self._observed
        return RolloutSlot(self.round, index, tree, hand.on(tree), strategy, flight)
