"""DARS: difficulty-adaptive rollout sampling, and with breadth DARS-B (arXiv 2508.13755)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.methods.dars import Dars, Schedule
from rolltree.credit.registry import load_credit
from rolltree.filter.groups import Mixed
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group

CLAIM = "pass@k of hard problems rises without more inference at convergence (Qwen2.5-Math-1.5B/7B, Llama-3.1-8B)"


@dataclass(frozen=True, slots=True)
class DarsRecipe:
    """Group-centred rewards whose hard prompts get more rollouts, in the sum over all samples (divided by a constant).

    Prompts all right or all wrong after both rounds are dropped, as released. That Σ|A| of hard prompts rises is how
    widths are chosen (a property test), so its evidence asks what simulated prompts learn from it.
    """

    card: ClassVar[Card] = Card(
        "dars", "Difficulty-adaptive rollout sampling", "2508.13755", 2025, CLAIM, ("control", "credit", "objective"),
        "dr_grpo",
        Evidence("pass@128 of all prompts after training on as many rollouts", "uniform width", "higher", 0.02, seeds=5,
                 check="studies.prompts.checks:dars"),
        counter=Counter("rollout/group_size_spread"),
    )  # fmt: skip
    group: int = 8
    schedule: Schedule = "even"
    """"even" gives hard prompts up to the same number of rollouts, "hard" more the harder they are."""
    most: int = 0
    """Most rollouts of a prompt; 0 = 4 times the strategy's width (even) or 8 times (hard), the paper's 32 and
    64."""
    clip: float = 0.2

    def build(self) -> Parts:
        """Independent rollouts topped up by pass rate, group mean, constant divisor."""
        check_group("dars", self.group)
        return Parts(
            "dars", Independent(self.group), load_credit("dr_grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="fixed", filters=(Mixed(),),
            control=Dars(self.schedule, self.most),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class DarsB:
    """DARS with breadth: one update over the whole batch, twice. Give many prompts (3,072 in the paper).

    Fewer and larger updates want a larger rate (5e-6 in the paper). In its evidence both sides take the best one for
    one update a step of the regime's calibration; at the rate for four, which is half of it, dars ends lower.
    """

    card: ClassVar[Card] = Card(
        "dars_b", "DARS with breadth", "2508.13755", 2025, CLAIM.replace("pass@k", "pass@1 and pass@k"),
        ("control", "credit", "objective"), "dars",
        Evidence("pass@1", "dars", least=0.04, task="regime:fresh", seeds=6,
                 settings=("train.prompts=32", "optim.lr=0.00025")),
        counter=Counter("rollout/group_size_spread"),
    )  # fmt: skip
    group: int = 8
    schedule: Schedule = "even"
    """"even" gives hard prompts up to the same number of rollouts, "hard" more the harder they are."""
    most: int = 0
    """Most rollouts of a prompt; 0 = 4 times the strategy's width (even) or 8 times (hard), the paper's 32 and
    64."""
    clip: float = 0.2
    passes: int = 2
    """Passes over the whole batch."""

    def build(self) -> Parts:
        """DARS with full-batch epochs."""
        made = DarsRecipe(self.group, self.schedule, self.most, self.clip).build()
        return Parts(
            "dars_b", made.strategy, made.credit, made.objective, averaging=made.averaging, filters=made.filters,
            control=made.control, optim={"epochs": self.passes, "minibatches": 1},
        )  # fmt: skip
