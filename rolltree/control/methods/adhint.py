"""Hints as long as a prompt is hard, beside unhinted rollouts (ADHint)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.brief import brief
from rolltree.control.hints import beginning
from rolltree.control.order import ControlError, Order
from rolltree.control.plan import Nothing, Plan, Step


@dataclass(frozen=True, slots=True)
class ADHint:
    """Half of a prompt's rollouts are unhinted; the others begin with a share w of a right answer,
    w = (most − least) · (failure rate of the first half) + least, plus noise (ADHint, arXiv 2512.13095, eq. 1).

    Prompts that the first half solved get no hint: their second half is unhinted too. What of the hints is trained on
    is the objective's (`hint_mask`), how the two arms are compared the credit's (`hinted`).
    """

    name: ClassVar[str] = "adhint"
    paper: ClassVar[str] = "2512.13095"
    needs: ClassVar[frozenset[str]] = frozenset({"solution", "one turn"})
    least: float = 0.1
    """Least share of a right answer that a hint shows."""
    most: float = 0.8
    """Largest share of a right answer that a hint shows."""
    spread: float = 0.05
    """Standard deviation of the noise on the share."""

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most <= 1 or self.spread < 0:
            raise ControlError(
                f"adhint: least={self.least}, most={self.most} and spread={self.spread} make no sense; give shares in "
                "order within [0, 1] and a spread of at least 0"
            )

    def start(self) -> Nothing:
        """It learns nothing across steps."""
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        """An unhinted round, then a hinted one."""
        assert step.solution is not None  # `needs` was checked
        half = max(step.width // 2, 1)
        rest = max(step.width - half, 1)
        delivered = yield [Order(prompt, half) for prompt in step.take()]
        orders: list[Order] = []
        for d in delivered:
            prompt, missed = d.order.prompt, 1 - d.rate
            share = (self.most - self.least) * missed + self.least + float(step.rng.normal(0, self.spread))
            answer = step.solution(prompt.item)
            # All of the answer leaves nothing to do.
            text = beginning(answer, min(max(share, 0.0), 1.0))[: len(answer) - 1] if d.n and missed > 0 else ""
            why = f"{missed:.2f} missed: {len(text)} of {len(answer)} characters shown"
            if text:
                shown = brief(text, "hint", joins=True, trainable=True)
                orders.append(Order(prompt, rest, "hint", shown, why=why, last=True))
            else:
                orders.append(Order(prompt, rest, why="solved without a hint", last=True))
        yield orders
