"""Random prompts of a pool: what every way of choosing prompts must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.order import Order
from rolltree.control.plan import Plan, Step
from rolltree.control.pool import Pool, check_pool


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
