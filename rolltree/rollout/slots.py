"""Where rollouts grow: the slots of a prompt's group, one for each order that its plan gave for the prompt.

A slot is a bare tree with the prompt as it is ordered, and the hand that grows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from rolltree.control.ledger import Budget
from rolltree.control.order import Order
from rolltree.engine.protocol import Engine, Sampling
from rolltree.generate.answers import check_item
from rolltree.generate.forced import Given
from rolltree.generate.hand import Hand
from rolltree.generate.probed import InFlight, Observed
from rolltree.generate.random import Stream, mix
from rolltree.generate.setting import Patience, Setting
from rolltree.generate.strategy import TreeStrategy
from rolltree.recipe.recipe import Parts
from rolltree.rollout.config import RolloutConfig
from rolltree.rollout.cursor import Cursor
from rolltree.rollout.ordered_items import asked_task, names_of, ordered_item
from rolltree.rollout.plan_runs import RoundState
from rolltree.rollout.widths import Ordered
from rolltree.task.protocol import Item, Task
from rolltree.tree import Forest, Tree


@dataclass(slots=True, eq=False)
class RolloutSlot:
    """Where the rollouts of one order grow: a part of a group."""

    round: RoundState
    """The round of the plan that it is of."""
    index: int
    """The order's place in the round."""
    tree: Tree
    hand: Hand
    strategy: TreeStrategy
    """What grows the tree where it is grown as a whole."""
    flight: InFlight
    given: Given | None = None
    """What writes its rollouts, where nobody samples them."""
    heads: dict[int, int] = field(default_factory=dict[int, int])
    """The first node of each rollout, by its place in the group."""
    empty: set[int] = field(default_factory=set[int])
    """Rollouts that ended before they had a node."""
    reported: dict[int, int] = field(default_factory=dict[int, int])
    """Tokens of each rollout that the scheduler knows of, what it took off since included."""
    failed_trees: list[Tree] = field(default_factory=list[Tree])
    """Trees whose growth failed and was begun again."""
    rescoring: bool = False
    """Whether it is over, and the log-probs of what was gathered are being read."""

    @property
    def order(self) -> Order:
        """What grows here."""
        return self.round.orders[self.index]


@dataclass(slots=True, eq=False)
class PromptGroup:
    """What a group of the scheduler is about: one prompt of one plan."""

    plan: int
    place: int
    """In the plan."""
    for_training: bool = True
    """Whether it is to be trained, or only measured."""
    slots: dict[int, RolloutSlot] = field(default_factory=dict[int, RolloutSlot])
    """Parts of the group whose results the plan does not know yet."""
    gathered: Tree | None = None
    """The prompt's tree, once something is in it."""
    discarded: list[Tree] = field(default_factory=list[Tree])
    """What grew and is not part of it."""

    def trees(self) -> list[Tree]:
        """All that grew, the tree that is trained first."""
        growing = [tree for slot in self.slots.values() for tree in (slot.tree, *slot.failed_trees)]
        there = [] if self.gathered is None else [self.gathered]
        return [*there, *growing, *self.discarded]

    @property
    def tree(self) -> Tree:
        """The tree that is trained."""
        return self.trees()[0]


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
        limit = around.limit if order.limit is None else min(order.limit, around.limit)
        if limit < around.limit or order.turns is not None:
            hand = Hand(replace(hand.setting, limit=limit, turns=order.turns), around.budget)
        plain = order.width is None and order.probe is None
        given = Given(order.given) if order.given else None
        strategy = given or (around.parts.strategy if plain else self._observed)
        return RolloutSlot(self.round, index, tree, hand.on(tree), strategy, flight, given)
