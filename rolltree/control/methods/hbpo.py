"""Arms with announced token budgets within one group (HBPO)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.allocate import proportional
from rolltree.control.brief import brief
from rolltree.control.order import ControlError, Order
from rolltree.control.plan import Nothing, Plan, Step


@dataclass(frozen=True, slots=True)
class Budgets:
    """Each prompt's rollouts are split over budget arms; a sentence at the beginning of the answer announces each.

    Leaves carry their `budget`, which the credit `budget` reads. The sentence stands in the tree as a hint that does
    not train (released code leaves its tokens in the loss).
    """

    name: ClassVar[str] = "hbpo"
    paper: ClassVar[str] = "2507.15844"
    needs: ClassVar[frozenset[str]] = frozenset({"one turn"})
    writes: ClassVar[frozenset[str]] = frozenset({"leaf:budget"})
    budgets: tuple[int, ...] = (512, 1024, 2048, 2560)
    """Lengths that are announced, in tokens; the rollouts of a prompt are split over them."""
    template: str = "I will answer the question within {budget} tokens. "
    """The sentence that announces one; `{arm}` in it is the number of the budget, from 0, for a policy that was
    trained to obey a word for each."""

    def __post_init__(self) -> None:
        if len(self.budgets) < 2 or min(self.budgets) < 1 or len(set(self.budgets)) < len(self.budgets):
            raise ControlError(
                f"hbpo: budgets={self.budgets} are no arms; give two or more different numbers of tokens"
            )
        if "{budget}" not in self.template and "{arm}" not in self.template:
            raise ControlError(
                f"hbpo: template={self.template!r} does not announce anything; write {{budget}} or {{arm}} in it"
            )

    def start(self) -> Nothing:
        """It learns nothing across steps."""
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        """All arms at once."""
        widths = proportional([1.0] * len(self.budgets), max(step.width, len(self.budgets)))
        yield [
            Order(
                prompt, width, f"budget {budget}", brief(self.template.format(budget=budget, arm=arm), "budget"),
                leaf_marks={"budget": float(budget)}, why=f"announces {budget} tokens", last=True,
            )
            for prompt in step.take() for arm, (budget, width) in enumerate(zip(self.budgets, widths, strict=True))
        ]  # fmt: skip
