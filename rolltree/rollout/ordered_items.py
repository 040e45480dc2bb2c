"""A plan's orders as the task is asked them: prompts with briefs, beginnings of answers, verdicts left to the plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rolltree.control.order import Order, Prompt
from rolltree.control.plan import Step
from rolltree.generate.spoken import spoken_brief
from rolltree.task.protocol import Item, Reply, Split, Task, Verdict
from rolltree.task.spoken import Speaker, Spoken

LEAD = "answer begins with"
"""Key in an ordered item's meta: text the verifier reads in front of the rollout."""
UNJUDGED = "graded by the plan"
"""Key in an ordered item's meta: the verifier is not asked."""


@dataclass(frozen=True, slots=True)
class SpokenStep(Step):
    """A step of a task in a chat template: what a control asks in words of its own is asked in that template too."""

    speaker: Speaker | None = None

    def prompts_of(self, items: Sequence[Item]) -> list[Prompt]:
        """Items in places of their own."""
        return [Prompt(self._spoken(item), next(self.places)) for item in items]

    def _spoken(self, item: Item) -> Item:
        if self.speaker is None or isinstance(item.prompt, Spoken):
            return item
        return replace(item, prompt=self.speaker.prompt(item.prompt))


def ordered_item(order: Order, place: int) -> Item:
    """The item as the arm asks it; one with a brief has an id of its own while it grows."""
    item, brief = order.prompt.item, order.brief
    if not order.judged:
        item = replace(item, id=f"{item.id}~{order.arm}~{place}", meta={**item.meta, UNJUDGED: True})
    if brief is None:
        return item
    meta = {**item.meta, LEAD: brief.lead} if brief.lead else item.meta
    return replace(item, id=f"{item.id}~{order.arm}~{place}", prompt=spoken_brief(brief, item.prompt), meta=meta)


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
    changed = any((o.brief and o.brief.lead) or not o.judged for o in orders)
    return OrderedTask(task) if changed else task


@dataclass(frozen=True, slots=True)
class OrderedTask:
    """A task whose verifier also reads the beginning of an answer that a control wrote, and leaves some to it."""

    inner: Task

    @property
    def name(self) -> str:
        """As of the task."""
        return self.inner.name

    @property
    def level(self) -> int:
        """As of the task."""
        return self.inner.level

    @property
    def stop(self) -> tuple[str, ...]:
        """As of the task."""
        return self.inner.stop

    @property
    def max_tokens(self) -> int:
        """As of the task."""
        return self.inner.max_tokens

    @property
    def max_turns(self) -> int:
        """As of the task."""
        return self.inner.max_turns

    @property
    def exact_text(self) -> bool:
        """As of the task."""
        return bool(getattr(self.inner, "exact_text", False))

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """As of the task."""
        return self.inner.items(split, seed)

    def start(self, item: Item) -> tuple[Any, str | None]:
        """As of the task."""
        return self.inner.start(item)

    async def step(self, item: Item, state: Any, text: str) -> Reply:
        """As of the task."""
        return await self.inner.step(item, state, text)

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """The task's verdict on the whole answer; none where the plan gives it."""
        if UNJUDGED in item.meta:
            return Verdict(0.0, why="the control says later what it is worth")
        return await self.inner.verify(item, state, str(item.meta.get(LEAD, "")) + text)
