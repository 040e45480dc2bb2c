"""An effort asked for in the prompt, relative to how long the policy's answers to it are now (e1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from rolltree.control.order import ControlError, Order
from rolltree.control.plan import Nothing, Plan, Step
from rolltree.task.protocol import Item


@dataclass(frozen=True, slots=True)
class EffortLevels:
    """Each prompt is asked at an effort r drawn from [least, most], or at its own; all its rollouts share it.

    The root carries `effort`, which `rolltree.filter.effort.WithinEffort` reads: right answers count if they are no
    longer than r times the group's mean. Asked at an effort a prompt is an arm of its own. At r = 1 about half of a
    group is too long; whether r may exceed 1 is not published.
    """

    name: ClassVar[str] = "e1"
    paper: ClassVar[str] = "2510.27042"
    needs: ClassVar[frozenset[str]] = frozenset()
    writes: ClassVar[frozenset[str]] = frozenset({"root:effort"})
    least: float = 0.2
    """Least effort that is asked for."""
    most: float = 1.0
    """Largest effort that is asked for."""
    template: str = "effort {effort:.1f}\n"
    """What stands in front of the prompt."""
    column: str = ""
    """Where items ask for an effort themselves: the column that holds it, as r. Their prompts stay as they are."""

    def __post_init__(self) -> None:
        if not 0.1 <= self.least <= self.most:
            raise ControlError(
                f"e1: efforts from {self.least} to {self.most} make no sense; give 0.1 <= least <= most (an effort is "
                "asked with one digit after the point)"
            )
        if self.template and "{effort" not in self.template:
            raise ControlError(
                f"e1: template={self.template!r} does not say the effort; write {{effort}} in it, or leave it empty"
            )

    def start(self) -> Nothing:
        """It learns nothing across steps."""
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        """One round."""
        orders: list[Order] = []
        for prompt in step.take():
            asked, effort = self._own(prompt.item) if self.column else self._drawn(prompt.item, step)
            orders.append(
                Order(
                    replace(prompt, item=asked), arm="effort", marks={"effort": effort}, why=f"effort {effort}",
                    last=True,
                )
            )  # fmt: skip
        yield orders

    def _drawn(self, item: Item, step: Step) -> tuple[Item, float]:
        """What is asked and what is said agree to the digit that is said."""
        effort = round(float(step.rng.uniform(self.least, self.most)), 1)
        return replace(item, prompt=self.template.format(effort=effort) + item.prompt), effort

    def _own(self, item: Item) -> tuple[Item, float]:
        effort = item.meta.get(self.column)
        if isinstance(effort, bool) or not isinstance(effort, int | float) or not 0 < effort <= 1:
            raise ControlError(
                f"e1: item {item.id!r} has {effort!r} in column {self.column!r}; an effort is a number above 0, up to 1"
                " (leave column out to have one drawn)"
            )
        return item, float(effort)
