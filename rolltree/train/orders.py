"""Fulfilling a plan's orders: plant what was ordered, let the recipe's strategy grow it, gather it by prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rolltree.control.following import Following, Name, Round
from rolltree.control.history import History
from rolltree.control.ledger import Budget
from rolltree.control.order import Delivery, Order
from rolltree.control.plan import Plan
from rolltree.engine.protocol import Engine, Sampling
from rolltree.errors import RolltreeError
from rolltree.generate.probed import InFlight, observed
from rolltree.generate.random import mix
from rolltree.generate.runner import grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.recipe.recipe import Parts
from rolltree.task.protocol import Task
from rolltree.train.gathering import Gathering, asked_task, names_of, ordered_item
from rolltree.train.widths import Ordered
from rolltree.tree import Forest, Tree


@dataclass(slots=True)
class Fulfilment:
    """The rollouts of one step as they come in."""

    recipe: Parts
    engine: Engine
    task: Task
    budget: Budget
    seed: int
    limit: int
    sampling: Sampling
    history: History
    step: int
    peers: Mapping[str, Engine] | None = None
    rounds: int = 0
    came: Gathering = field(init=False)
    """Groups and measurements."""

    def __post_init__(self) -> None:
        self.came = Gathering(self.engine, self.task, self.budget, self.recipe.filters, self.history, self.step)

    async def follow(self, plan: Plan) -> list[Delivery]:
        """Fulfil a plan to its end and return all that was delivered for it.

        Plans that run side by side do not wait for one another; each has streams of randomness of its own.
        """
        following = Following(plan, self.came.grade)

        async def fulfil(round: Round) -> None:
            answer = await self.round(round.orders, round.name)
            for more in following.answer(round.name, answer):
                group.create_task(fulfil(more))

        try:
            async with asyncio.TaskGroup() as group:
                for round in following.begin():
                    group.create_task(fulfil(round))
        except ExceptionGroup as several:
            # Bad input is one sentence, also where plans run side by side.
            errors = several.exceptions
            raise next((e for e in errors if isinstance(e, RolltreeError)), errors[0]) from None
        return following.out

    async def round(self, orders: Sequence[Order], name: Name) -> list[Delivery]:
        """Grow what one round orders."""
        self.rounds += 1
        came = self.came
        before = [*came.groups.values(), *came.measured]
        began = max((e.at for tree in before for e in tree.events), default=0.0)
        items = [ordered_item(order, i) for i, order in enumerate(orders)]
        trees = [came.plant(*each) for each in zip(orders, items, names_of(items), strict=True)]
        strategy = self.recipe.strategy
        if any(order.width is not None for order in orders):
            assert isinstance(strategy, TreeStrategy)  # `check_width` saw to it
            widths = {tree.id: order.width for tree, order in zip(trees, orders, strict=True)}
            strategy = Ordered(strategy, widths)
        flights = {tree.id: InFlight(order.probe, order.limit) for tree, order in zip(trees, orders, strict=True)}
        await grow(
            observed(strategy, flights), self.engine, asked_task(self.task, orders), items,
            seed=mix(self.seed, "round", *name), budget=self.budget, max_tokens=self.limit, sampling=self.sampling,
            forest=Forest(trees), peers=self.peers,
        )  # fmt: skip
        for tree in trees:  # the clock goes on where the rounds before stopped
            tree.events = [replace(e, at=e.at + began) for e in tree.events]
        out = [await self._gather(*each, name[-1], flights) for each in zip(orders, trees, strict=True)]
        out = [came.judged(delivery) for delivery in out]
        came.note(out)
        return out

    async def _gather(self, order: Order, tree: Tree, number: int, flights: Mapping[str, InFlight]) -> Delivery:
        delivery, heads = self.came.gather(order, tree, flights[tree.id].outcomes(tree), number)
        await self.came.rescore(order, heads)
        return delivery
