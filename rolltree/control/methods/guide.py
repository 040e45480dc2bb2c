"""Guidance for prompts whose rollouts all failed, taught to the policy without it (Guide)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.brief import brief
from rolltree.control.hints import beginning
from rolltree.control.order import ControlError, Order
from rolltree.control.plan import Nothing, Plan, Step


@dataclass(frozen=True, slots=True)
class Guide:
    """As many rollouts again with a hint in the prompt, where all unguided ones failed; one group with the failures.

    Guided rollouts derive the whole answer themselves and are trained under the bare prompt, so the objective must
    divide by the distribution that sampled them ("context_corrected"). The paper's hints are written beforehand by a
    stronger model; here the hint is the beginning of a right answer. `always` guides every prompt (the ablation).
    """

    name: ClassVar[str] = "guide"
    paper: ClassVar[str] = "2506.13923"
    needs: ClassVar[frozenset[str]] = frozenset({"solution", "one turn"})
    width: int = 0
    """Guided rollouts of a prompt; 0 = as many as unguided ones."""
    share: float = 0.5
    """How much of the answer the hint shows."""
    template: str = "\nHint: {hint}\n"
    """How a hint stands in the prompt."""
    always: bool = False
    """Whether every prompt is guided, not only those that always failed."""

    def __post_init__(self) -> None:
        if "{hint}" not in self.template:
            raise ControlError(f"guide: template={self.template!r} has no place for the hint; write {{hint}} in it")

    def start(self) -> Nothing:
        """It learns nothing across steps."""
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        """A plain round, then a guided one for those who need it."""
        assert step.solution is not None  # `needs` was checked
        delivered = yield [Order(prompt) for prompt in step.take()]
        orders: list[Order] = []
        for d in delivered:
            if d.n and (self.always or max(d.rewards) <= 0):
                hint = beginning(step.solution(d.order.prompt.item), self.share)
                shown = brief(self.template.format(hint=hint), "hint", hidden=True)
                why = f"{d.solved:g} of {d.n} solved: guided"
                orders.append(Order(d.order.prompt, self.width or d.n, "guided", shown, why=why, last=True))
        if orders:
            yield orders
