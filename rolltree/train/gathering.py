"""What orders become: trees planted as they are asked, and gathered by prompt into the groups that credit sees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rolltree.control.history import History, band
from rolltree.control.ledger import Budget
from rolltree.control.order import PLAIN, ControlError, Delivery, Grades, Order
from rolltree.control.probe import Probed
from rolltree.engine.protocol import Engine
from rolltree.filter.groups import GroupFilter, drop, live_leaves
from rolltree.task.protocol import Item, Reply, Split, Task, Verdict
from rolltree.train.merge import absorb, score_bare, score_node
from rolltree.tree import Node, Tree
from rolltree.tree.node import Array

LEAD = "answer begins with"
"""Key in an ordered item's meta: text the verifier reads in front of the rollout."""
UNJUDGED = "graded by the plan"
"""Key in an ordered item's meta: the verifier is not asked."""
MEASURED = "asked for to measure, not to teach"
"""Why such trees are dropped."""


@dataclass(slots=True)
class Gathering:
    """The groups of one plan as they come in."""

    engine: Engine
    task: Task
    budget: Budget
    filters: Sequence[GroupFilter]
    history: History
    step: int
    groups: dict[int, Tree] = field(default_factory=dict[int, Tree])
    """The tree of each prompt, by its place."""
    measured: list[Tree] = field(default_factory=list[Tree])
    """Trees that were ordered to measure, not to teach."""
    bands: dict[str, str] = field(default_factory=dict[str, str])
    """Each prompt's difficulty band by what was known before the step."""
    _ids: set[str] = field(default_factory=set[str])
    _ungraded: dict[int, Delivery] = field(default_factory=dict[int, Delivery])
    """Deliveries whose outcomes the plan has yet to say, by place."""

    def plant(self, order: Order, item: Item, name: str) -> Tree:
        """A bare tree with the prompt as the order asks it; `item` is the order's own (`ordered_item`)."""
        encode = self.engine.codec.encode
        ids = np.asarray(encode(order.prompt.item.prompt), np.int32)
        if order.edit is not None:
            text = np.asarray(encode(order.edit.text), np.int32)
            ids = np.concatenate([text, ids] if order.edit.before else [ids, text])
        return Tree(name, ids, task=self.task.name, item=item.id)

    def restored(self, place: int, group: Tree) -> None:
        """A group that had been gathered before a restart."""
        self.groups[place] = group
        self._ids.add(group.id)

    def gather(self, order: Order, tree: Tree, seen: tuple[Probed, ...], number: int) -> tuple[Delivery, list[Node]]:
        """Put what grew for an order of the plan's round `number` into its prompt's group.

        Returns the delivery, and nodes whose log-probs must be read again in the group's tree (`rescore`) before it is
        one.
        """
        prompt = order.prompt
        tree.item = prompt.item.id
        self._name(tree, number)
        delivery = self.delivery(order, tree, seen)
        if not order.judged:
            for leaf in live_leaves(tree):
                leaf.scores.clear()
        for leaf in tree.leaves():
            leaf.scores.update(order.leaf_marks)
            if order.arm != PLAIN:
                leaf.notes["arm"] = order.arm
        if not order.for_training:
            drop(tree, MEASURED)
            self.measured.append(tree)
            return delivery, []
        group, heads = self.groups.get(prompt.place), list[Node]()
        if group is None:
            bare = order.edit is None
            group = tree if bare else Tree(tree.id, self.engine.codec.encode(prompt.item.prompt),
                                           task=self.task.name, item=prompt.item.id)  # fmt: skip
            self.groups[prompt.place] = group
        if group is not tree:
            heads = absorb(group, tree, order)
        group.root.scores.update(order.marks)
        if order.why or order.width is not None or order.edit is not None:
            numbers: dict[str, Any] = {"arm": order.arm, "width": order.width, "delivered": delivery.n, **order.marks}
            group.event("allocate", None, order.why, **numbers)
        edit = order.edit
        return delivery, heads if edit is not None and (edit.hidden or edit.trainable) else []

    async def rescore(self, order: Order, heads: Sequence[Node]) -> None:
        """Read the log-probs that gathering changed the context of, or that were never read."""
        if not heads or order.edit is None:
            return
        group = self.groups[order.prompt.place]
        if order.edit.hidden:
            await score_bare(group, list(heads), self.engine, self.budget)
        elif heads[0].parent is not None:
            await score_node(group, group[heads[0].parent], self.engine, self.budget)

    def judged(self, delivery: Delivery) -> Delivery:
        """The delivery with the filters' word on its prompt's group as it is now."""
        group = self.groups.get(delivery.order.prompt.place)
        kept = delivery.order.for_training and group is not None and all(f(group) is None for f in self.filters)
        return replace(delivery, kept=kept)

    def note(self, round: Sequence[Delivery]) -> None:
        """Remember what was delivered for a round."""
        for delivery in round:
            uid = delivery.order.prompt.uid
            self.bands.setdefault(uid, band(self.history.rate(uid)))
            if not delivery.order.judged:
                self._ungraded[delivery.order.prompt.place] = delivery
        self.history.observe(round, self.step)

    def grade(self, grades: Grades) -> list[Delivery]:
        """Write the outcomes a plan gives, and say the deliveries again with them."""
        out: list[Delivery] = []
        for place, rewards in grades.rewards.items():
            delivery = self._ungraded.pop(place, None)
            if delivery is None or len(delivery.texts) != len(rewards):
                raise ControlError(
                    f"a plan gives {len(rewards)} outcomes to the one in place {place}, where "
                    f"{len(delivery.texts) if delivery else 0} rollouts wait for one; grade what was ordered with "
                    "judged=False once, one outcome for each text"
                )
            if tree := self.groups.get(place):
                for leaf, reward in zip(_ungraded(tree), rewards, strict=True):
                    leaf.scores["reward"] = reward
                    tree.event("verify", leaf, "graded by the control", reward=reward)
            numbers = dict(grades.numbers.get(place, {}))
            out.append(self.judged(replace(delivery, rewards=tuple(rewards), numbers=numbers)))
        self.history.observe([replace(d, decoded=0) for d in out], self.step)
        return out

    def delivery(self, order: Order, tree: Tree, seen: tuple[Probed, ...] = ()) -> Delivery:
        """What came of an order, read off its tree."""
        live = live_leaves(tree)
        rewards = tuple(leaf.scores["reward"] for leaf in live)
        lengths = tuple(_written(tree, leaf) for leaf in live)
        right = [(n, i) for i, (n, r) in enumerate(zip(lengths, rewards, strict=True)) if r >= 1 - 1e-9]
        text = ""
        if right and order.judged:
            text = self.engine.codec.decode(_own(tree, live[min(right)[1]]))
        said = (self.engine.codec.decode(_own(tree, leaf)) for leaf in live if order.texts or not order.judged)
        return Delivery(
            order, rewards if order.judged else (), lengths, texts=tuple(said),
            decoded=sum(len(n) for n in tree if n.trainable and not n.forced),
            failed=sum(leaf.status == "failed" for leaf in tree.leaves()), solved_text=text, probes=seen,
        )  # fmt: skip

    def _name(self, tree: Tree, number: int) -> None:
        """Names that are a step's own, so that its trees can be stored together."""
        name = tree.id if number == 0 else f"{tree.id}@{number + 1}"
        tree.id, count = name, 1
        while tree.id in self._ids:
            count += 1
            tree.id = f"{name}+{count}"
        self._ids.add(tree.id)


def ordered_item(order: Order, place: int) -> Item:
    """The item as the arm asks it; an edited one has an id of its own while it grows."""
    item, edit = order.prompt.item, order.edit
    if not order.judged:
        item = replace(item, id=f"{item.id}~{order.arm}~{place}", meta={**item.meta, UNJUDGED: True})
    if edit is None:
        return item
    meta = {**item.meta, LEAD: edit.text} if edit.joins else item.meta
    return replace(item, id=f"{item.id}~{order.arm}~{place}", prompt=edit.around(item.prompt), meta=meta)


def names_of(items: Sequence[Item]) -> list[str]:
    """A name for the tree of each item of a round: its id, and a number where several have the same."""
    out: list[str] = []
    for item in items:
        name, count = item.id, 1
        while name in out:
            count += 1
            name = f"{item.id}#{count}"
        out.append(name)
    return out


def asked_task(task: Task, orders: Sequence[Order]) -> Task:
    """The task as these orders ask it: the same one, but where a control writes beginnings or judges by itself."""
    told = any((o.edit and o.edit.joins) or not o.judged for o in orders)
    return _Told(task) if told else task


def _ungraded(tree: Tree) -> list[Node]:
    return [
        leaf for leaf in tree.leaves()
        if leaf.status == "done" and "reward" not in leaf.scores and not leaf.usage.startswith("dropped")
    ]  # fmt: skip


def _own(tree: Tree, leaf: Node) -> Array:
    """Everything after the prompt."""
    return np.concatenate([n.actions for n in tree.path(leaf) if n.role != "prompt"])


def _written(tree: Tree, leaf: Node) -> int:
    return sum(len(n) for n in tree.path(leaf) if n.trainable)


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
