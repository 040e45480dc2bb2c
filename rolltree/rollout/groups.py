"""Where rollouts grow: the slots of a prompt's group, one for each order that its plan gave for the prompt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rolltree.control.order import Order
from rolltree.generate.hand import Hand
from rolltree.generate.probed import InFlight
from rolltree.generate.strategy import TreeStrategy
from rolltree.tree import Tree

if TYPE_CHECKING:
    from rolltree.rollout.plan_runs import RoundState


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
