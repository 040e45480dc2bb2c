"""Rollouts that only measure prompts: they say what the policy solves now, and nothing of them is trained on."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from rolltree.control.order import Delivery, Order
from rolltree.control.plan import Step
from rolltree.task.protocol import Item


def measured(
    step: Step, items: Sequence[Item], width: int, why: str
) -> Generator[Sequence[Order], Sequence[Delivery], list[Delivery]]:
    """A round of a plan (`yield from`): the deliveries that have an outcome."""
    prompts = step.prompts_of(items)
    delivered = yield [Order(p, width or step.width, for_training=False, why=why) for p in prompts]
    return [d for d in delivered if d.n]
