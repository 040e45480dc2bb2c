"""Fulfilling a plan's orders: plant what was ordered, let the recipe's strategy grow it, gather it by prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rolltree.control.history import History, band
from rolltree.control.ledger import Budget
from rolltree.control.order import PLAIN, ControlError, Delivery, Grades, Order
from rolltree.control.plan import Apart, Plan
from rolltree.control.probe import Probed
from rolltree.engine.protocol import Engine, Sampling
from rolltree.errors import RolltreeError
from rolltree.filter.groups import drop, live_leaves
from rolltree.generate.probed import InFlight, observed
from rolltree.generate.random import Name, mix
from rolltree.generate.runner import grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.recipe.recipe import Parts
from rolltree.task.protocol import Item, Reply, Split, Task, Verdict
from rolltree.train.merge import absorb, score_bare, score_node
from rolltree.train.widths import Ordered
from rolltree.tree import Forest, Node, Tree
from rolltree.tree.node import Array

LEAD = "answer begins with"
"""Key in an ordered item's meta: text the verifier reads in front of the rollout."""
UNJUDGED = "graded by the plan"
"""Key in an ordered item's meta: the verifier is not asked."""


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
    groups: dict[int, Tree] = field(default_factory=dict[int, Tree])
    """The tree of each prompt, by its place."""
    measured: list[Tree] = field(default_factory=list[Tree])
    """Trees that were ordered to measure, not to teach."""
    bands: dict[str, str] = field(default_factory=dict[str, str])
    """Each prompt's difficulty band by what was known before the step."""
    rounds: int = 0
    _ids: set[str] = field(default_factory=set[str])
    _ungraded: dict[int, tuple[Delivery, list[Node]]] = field(default_factory=dict[int, tuple[Delivery, list[Node]]])
    """Deliveries whose outcomes the plan has yet to say, with their leaves, by place."""

    async def follow(self, plan: Plan, *name: Name) -> list[Delivery]:
        """Fulfil a plan to its end and return all that was delivered for it.

        `name` tells plans that run side by side apart: each has streams of its own.
        """
        out: list[Delivery] = []
        answer: Sequence[Delivery] | None = None
        number = 0
        while True:
            try:
                orders = next(plan) if answer is None else plan.send(answer)
            except StopIteration:
                return out
            if isinstance(orders, Apart):
                try:
                    async with asyncio.TaskGroup() as group:
                        parts = [
                            group.create_task(self.follow(p, *name, number, i)) for i, p in enumerate(orders.plans)
                        ]
                except ExceptionGroup as several:
                    # Bad input is one sentence, also where plans run side by side.
                    known = next((e for e in several.exceptions if isinstance(e, RolltreeError)), None)
                    if known is None:
                        raise
                    raise known from several
                # In the order of the plans, whoever came first.
                answer = [delivery for part in parts for delivery in part.result()]
            elif isinstance(orders, Grades):
                answer = self.grade(orders)
                graded = {d.order.prompt.place: d for d in answer}
                out = [d if d.order.judged else graded.get(d.order.prompt.place, d) for d in out]
                continue
            else:
                answer = await self.round(orders, *name, number)
            out.extend(answer)
            number += 1

    async def round(self, orders: Sequence[Order], *name: Name) -> list[Delivery]:
        """Grow what one round orders."""
        if not orders:
            return []
        number, self.rounds = name[-1], self.rounds + 1
        before = [*self.groups.values(), *self.measured]
        began = max((e.at for tree in before for e in tree.events), default=0.0)
        told = any((o.edit and o.edit.joins) or not o.judged for o in orders)
        forest, task = Forest(), _Told(self.task) if told else self.task
        items = [_ordered_item(order, i) for i, order in enumerate(orders)]
        trees = [self._plant(forest, o, item) for o, item in zip(orders, items, strict=True)]
        strategy = self.recipe.strategy
        if any(order.width is not None for order in orders):
            assert isinstance(strategy, TreeStrategy)  # `check_width` saw to it
            widths = {tree.id: order.width for tree, order in zip(trees, orders, strict=True)}
            strategy = Ordered(strategy, widths)
        flights = {tree.id: InFlight(order.probe, order.limit) for tree, order in zip(trees, orders, strict=True)}
        await grow(
            observed(strategy, flights), self.engine, task, items, seed=mix(self.seed, "round", *name),
            budget=self.budget, max_tokens=self.limit, sampling=self.sampling, forest=forest, peers=self.peers,
        )  # fmt: skip
        for tree in trees:  # the clock goes on where the rounds before stopped
            tree.events = [replace(e, at=e.at + began) for e in tree.events]
        seen = [flights[tree.id].outcomes(tree) for tree in trees]
        out = [await self._gather(*each, number) for each in zip(orders, trees, seen, strict=True)]
        for i, delivery in enumerate(out):
            group = self.groups.get(delivery.order.prompt.place)
            kept = delivery.order.teaches and group is not None and all(f(group) is None for f in self.recipe.filters)
            out[i] = replace(delivery, kept=kept)
        for delivery in out:
            uid = delivery.order.prompt.uid
            self.bands.setdefault(uid, band(self.history.rate(uid)))
        self.history.observe(out, self.step)
        return out

    def _plant(self, forest: Forest, order: Order, item: Item) -> Tree:
        encode = self.engine.codec.encode
        ids = np.asarray(encode(order.prompt.item.prompt), np.int32)
        if order.edit is not None:
            text = np.asarray(encode(order.edit.text), np.int32)
            ids = np.concatenate([text, ids] if order.edit.before else [ids, text])
        id, count = item.id, 1
        while id in forest:
            count += 1
            id = f"{item.id}#{count}"
        return forest.plant(id, ids, task=self.task.name, item=item.id)

    def grade(self, grades: Grades) -> list[Delivery]:
        """Write the outcomes a plan gives, and say the deliveries again with them."""
        out: list[Delivery] = []
        for place, rewards in grades.rewards.items():
            delivery, leaves = self._ungraded.pop(place, (None, []))
            if delivery is None or len(leaves) != len(rewards):
                raise ControlError(
                    f"a plan gives {len(rewards)} outcomes to the one in place {place}, where {len(leaves)} rollouts "
                    "wait for one; grade what was ordered with judged=False once, one outcome for each text"
                )
            tree = self.groups[place]
            for leaf, reward in zip(leaves, rewards, strict=True):
                leaf.scores["reward"] = reward
                tree.event("verify", leaf, "graded by the control", reward=reward)
            kept = all(f(tree) is None for f in self.recipe.filters)
            numbers = dict(grades.numbers.get(place, {}))
            out.append(replace(delivery, rewards=tuple(rewards), kept=kept, numbers=numbers))
        self.history.observe([replace(d, decoded=0) for d in out], self.step)
        return out

    async def _gather(self, order: Order, tree: Tree, seen: tuple[Probed, ...], number: Name) -> Delivery:
        prompt = order.prompt
        tree.item = prompt.item.id
        self._name(tree, number)
        delivery = replace(self._delivery(order, tree), probes=seen)
        if not order.judged:
            live = live_leaves(tree)
            for leaf in live:
                leaf.scores.clear()
            delivery = replace(delivery, rewards=(), solved_text="")
            self._ungraded[prompt.place] = (delivery, live)
        for leaf in tree.leaves():
            leaf.scores.update(order.leaf_marks)
            if order.arm != PLAIN:
                leaf.notes["arm"] = order.arm
        if not order.teaches:
            drop(tree, "asked for to measure, not to teach")
            self.measured.append(tree)
            return delivery
        group = self.groups.get(prompt.place)
        if group is None:
            bare = order.edit is None
            group = tree if bare else Tree(tree.id, self.engine.codec.encode(prompt.item.prompt),
                                           task=self.task.name, item=prompt.item.id)  # fmt: skip
            self.groups[prompt.place] = group
        if group is not tree:
            heads = absorb(group, tree, order)
            if order.edit is not None and order.edit.hidden:
                await score_bare(group, heads, self.engine, self.budget)
            elif order.edit is not None and order.edit.teaches and heads and heads[0].parent is not None:
                await score_node(group, group[heads[0].parent], self.engine, self.budget)
        group.root.scores.update(order.marks)
        if order.why or order.width is not None or order.edit is not None:
            numbers: dict[str, Any] = {"arm": order.arm, "width": order.width, "delivered": delivery.n, **order.marks}
            group.event("allocate", None, order.why, **numbers)
        return delivery

    def _name(self, tree: Tree, number: Name) -> None:
        """Names that are a step's own, so that its trees can be stored together."""
        name = tree.id if number == 0 else f"{tree.id}@{int(number) + 1}"
        tree.id, count = name, 1
        while tree.id in self._ids:
            count += 1
            tree.id = f"{name}+{count}"
        self._ids.add(tree.id)

    def _delivery(self, order: Order, tree: Tree) -> Delivery:
        live = live_leaves(tree)
        rewards = tuple(leaf.scores["reward"] for leaf in live)
        lengths = tuple(_written(tree, leaf) for leaf in live)
        right = [(n, i) for i, (n, r) in enumerate(zip(lengths, rewards, strict=True)) if r >= 1 - 1e-9]
        text = ""
        if right:
            text = self.engine.codec.decode(_own(tree, live[min(right)[1]]))
        said = (self.engine.codec.decode(_own(tree, leaf)) for leaf in live if order.texts or not order.judged)
        return Delivery(
            order, rewards, lengths, texts=tuple(said), decoded=sum(len(n) for n in tree if n.trains and not n.forced),
            failed=sum(leaf.status == "failed" for leaf in tree.leaves()), solved_text=text,
        )  # fmt: skip


def _own(tree: Tree, leaf: Node) -> Array:
    """Everything after the prompt."""
    return np.concatenate([n.actions for n in tree.path(leaf) if n.role != "prompt"])


def _written(tree: Tree, leaf: Node) -> int:
    return sum(len(n) for n in tree.path(leaf) if n.trains)


def _ordered_item(order: Order, place: int) -> Item:
    """The item as the arm asks it; an edited one has an id of its own while it grows."""
    item, edit = order.prompt.item, order.edit
    if not order.judged:
        item = replace(item, id=f"{item.id}~{order.arm}~{place}", meta={**item.meta, UNJUDGED: True})
    if edit is None:
        return item
    meta = {**item.meta, LEAD: edit.text} if edit.joins else item.meta
    return replace(item, id=f"{item.id}~{order.arm}~{place}", prompt=edit.around(item.prompt), meta=meta)


@dataclass(frozen=True, slots=True)
class _Told:
    """A task whose verifier also reads the beginning of an answer that a control wrote, and leaves some to it."""

    inner: Task

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def level(self) -> int:
        return self.inner.level

    @property
    def stop(self) -> tuple[str, ...]:
        return self.inner.stop

    @property
    def max_tokens(self) -> int:
        return self.inner.max_tokens

    @property
    def max_turns(self) -> int:
        return self.inner.max_turns

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        return self.inner.items(split, seed)

    def start(self, item: Item) -> tuple[Any, str | None]:
        return self.inner.start(item)

    async def step(self, item: Item, state: Any, text: str) -> Reply:
        return await self.inner.step(item, state, text)

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        if UNJUDGED in item.meta:
            return Verdict(0.0, why="the control says later what it is worth")
        return await self.inner.verify(item, state, str(item.meta.get(LEAD, "")) + text)
