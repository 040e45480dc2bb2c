"""Guide-GRPO: hints for prompts that only fail, learned for the bare prompt (arXiv 2506.13923)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.brief import brief
from rolltree.control.hints import beginning
from rolltree.control.order import ControlError, Order
from rolltree.control.plan import Nothing, Plan, Step
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group

# Guidance for prompts whose rollouts all failed, taught to the policy without it (Guide).


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


@dataclass(frozen=True, slots=True)
class GuideRecipe:
    """GRPO whose dead prompts get guided rollouts, with ratios of the bare context to the guided one.

    The group is failures and guided rollouts together (reconstructed). Ratios start far below 1, so credit for what
    the unguided policy would never have said starts small.
    """

    card: ClassVar[Card] = Card(
        "guide", "Adaptive guidance", "2506.13923", 2025,
        "up to +4 % macro average over GRPO on mathematics (7B, 32B), pass@16 also up",
        ("generate", "control", "objective"), "grpo",
        Evidence("unhinted pass rate of a hard prompt", "GRPO with as many rollouts", "higher", 0.05, seeds=20,
                 check="rolltree_papers.guide.study:guide"),
        counter=Counter("budget/arm/guided"),
    )  # fmt: skip
    group: int = 8
    share: float = 0.5
    """How much of the answer the hint shows."""
    template: str = "\nHint: {hint}\n"
    """How a hint is written into the prompt."""
    clip: float = 0.2

    def build(self) -> Parts:
        """Rescue by guidance; the clipped surrogate against the distribution that sampled."""
        check_group("guide", self.group)
        return Parts(
            "guide", Independent(self.group), load_credit("grpo"),
            load_objective("context_corrected", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=Guide(share=self.share, template=self.template),
        )  # fmt: skip
