"""A pool of prompts to choose from: places in the run's stream of training items, revisited until they are replaced."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rolltree.control.order import ControlError, Delivery, Order
from rolltree.control.plan import Plan, Step, Supply
from rolltree.task.protocol import Item
from rolltree.tree.store.values import storable

# Rollouts that only measure prompts: they say what the policy solves now, and nothing of them is trained on.


def measured(
    step: Step, items: Sequence[Item], width: int, why: str
) -> Generator[Sequence[Order], Sequence[Delivery], list[Delivery]]:
    """A round of a plan (`yield from`): the deliveries that have an outcome."""
    prompts = step.prompts_of(items)
    delivered = yield [Order(p, width or step.width, for_training=False, why=why) for p in prompts]
    return [d for d in delivered if d.n]


@storable
@dataclass(slots=True)
class Pool:
    """The latest `size` different items of the stream; `fresh` of them are replaced each step, the oldest first.

    Only places are stored: the items are read from the stream again. Items that repeat an id are left out.
    """

    size: int = 256
    fresh: int = 0
    places: list[int] = field(default_factory=list[int])
    ids: list[str] = field(default_factory=list[str])

    def items(self, supply: Supply) -> list[Item]:
        """The candidates of this step. Small tasks may have fewer different items than `size`."""
        if not self.places:
            self._add(supply, self.size)
        elif self.fresh:
            self._add(supply, self.fresh)
        drop = max(len(self.places) - self.size, 0)
        del self.places[:drop], self.ids[:drop]
        return supply.at(self.places)

    def _add(self, supply: Supply, count: int) -> None:
        known = set(self.ids)
        wanted, looked = count, 0
        while wanted and looked < 20 * count:
            place = supply.taken
            (item,) = supply.take(1)
            looked += 1
            if item.id not in known:
                known.add(item.id)
                self.places.append(place)
                self.ids.append(item.id)
                wanted -= 1


def check_pool(who: str, pool: int, fresh: int) -> None:
    """Refuse sizes that make no sense."""
    if pool < 1:
        raise ControlError(f"{who}: pool={pool} leaves nothing to choose from; give the number of candidate prompts")
    if not 0 <= fresh <= pool:
        raise ControlError(f"{who}: fresh={fresh} of a pool of {pool} makes no sense; give 0 to {pool}")


def highest(scores: NDArray[np.float64], count: int, rng: np.random.Generator) -> list[int]:
    """Indices of the `count` highest scores, equal ones in random order; all of them if there are fewer."""
    order = np.lexsort((rng.permutation(len(scores)), -np.round(scores, 12)))
    return [int(i) for i in order[:count]]


def softmax_draw(logits: NDArray[np.float64], count: int, rng: np.random.Generator) -> list[int]:
    """A draw without replacement with probabilities in proportion to exp(logits) (Gumbel top-k)."""
    return highest(logits + rng.gumbel(size=len(logits)), count, rng)


# Random prompts of a pool: what every way of choosing prompts must beat.


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Each step trains on prompts drawn uniformly from a pool, at the strategy's width."""

    name: ClassVar[str] = "shuffled"
    paper: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    pool: int = 256
    """Candidate prompts."""
    fresh: int = 0
    """How many of them are replaced by new ones each step."""

    def __post_init__(self) -> None:
        check_pool(self.name, self.pool, self.fresh)

    def start(self) -> Pool:
        """An empty pool."""
        return Pool(self.pool, self.fresh)

    def plan(self, step: Step, state: Pool) -> Plan:
        """One round."""
        items = state.items(step.supply)
        chosen = step.rng.permutation(len(items))[: step.prompts]
        yield [Order(prompt, last=True) for prompt in step.prompts_of([items[i] for i in chosen])]
