"""HiMAC: hierarchical macro-micro learning (arXiv 2603.00977)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.plans import PlanExecute
from rolltree.objective.registry import load_objective
from rolltree.recipe.compose import at_start
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group


@dataclass(frozen=True, slots=True)
class Himac:
    """Plans are compared under one greedy executor; then the best plan is fixed and its executions are compared.

    The two phases take turns (`phase`, a schedule): in "macro" each of the plans is executed once, greedily, and plans
    alone learn; in "micro" the best of them is fixed, executed anew by sampling, and all these executions learn. A plan
    is what the task calls one: in `planned:grid` the subgoals in order, of which each reply names the one in force,
    with a mark that ends it and a budget of moves. The evidence starts from a policy that has imitated such play
    (`planned`), where a wrong order of subgoals mostly leads nowhere, and in which nobody ends a subgoal by its mark.
    Elsewhere the first `turns` turns are taken for a
    plan. Cutting the context to the active subgoal is left out. The event "the best plan is fixed" says what it earned.
    """

    card: ClassVar[Card] = Card(
        "himac", "Hierarchical macro-micro learning", "2603.00977", 2026,
        "89.9 on ALFWorld (1.5B) against 86.1 for GiGPO; without the hierarchy 14.5 points less",
        ("generate", "credit"), "grpo",
        Evidence(
            "pass@1", "grpo", least=0.04, task="regime:planned", seeds=6, settings=("grpo:group=12",),
        ),
        counter=Counter("rollout/births/boundary"),
    )  # fmt: skip
    plans: int = 8
    """Plans of each prompt."""
    executions: int = 8
    """Executions of the plan that is fixed."""
    turns: int = 3
    """Turns of a plan, where an environment answers and does not itself ask for one."""
    stop: str = ","
    """What ends a plan elsewhere."""
    phase: str = "macro, micro every 1"
    """Which level learns from a step; how often they change is reconstructed."""
    clip: float = 0.2
    kl: float = 0.0
    """Weight of the penalty towards the starting policy; 0.01 in the paper."""

    @at_start
    def build(self) -> Parts:
        """Plans and executions of the phase, credit by level, clipped surrogate; a plan is one sample."""
        check_group("himac", self.plans)
        if self.phase not in ("macro", "micro"):
            raise RecipeError(f"himac: phase={self.phase!r} is neither 'macro' nor 'micro'")
        if self.executions < 2 and self.phase == "micro":
            raise RecipeError(
                f"himac: executions={self.executions} leaves nothing to compare below a plan; give 2, or phase=macro"
            )
        return Parts(
            "himac", PlanExecute(self.plans, self.executions, self.turns, (self.stop,), self.phase),
            load_credit("himac"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="sequence",
            multiplicity="once",
        )  # fmt: skip
