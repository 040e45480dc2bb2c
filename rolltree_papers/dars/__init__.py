"""DARS: difficulty-adaptive rollout sampling, and with breadth DARS-B (arXiv 2508.13755)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.control.order import ControlError, Order
from rolltree.control.plan import Nothing, Plan, Step
from rolltree.credit.registry import load_credit
from rolltree.filter.groups import Mixed
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group

# Difficulty-adaptive rollouts: hard prompts get the rollouts that give them the same advantage mass (DARS).

Schedule = Literal["even", "hard"]


def top_up(rate: float, n: int, schedule: Schedule = "even", *, scaled: bool = False, most: int = 32) -> int:
    """How many more rollouts a prompt gets whose first `n` passed at `rate` (arXiv 2508.13755, as released).

    Σ|A| of a group is N · S with S = 2p(1−p) for centred advantages, 2√(p(1−p)) for standardised ones; at p = 1/2 it
    peaks. "even" fills every prompt below 1/2 up to that peak, "hard" up to 2(1−p) times it. p = 0 counts as 1/(2N).
    """
    p = rate if rate > 0 else 0.5 / n
    if p >= 0.5:
        return 0
    share = 2 * math.sqrt(p * (1 - p)) if scaled else 2 * p * (1 - p)
    peak = n * (1.0 if scaled else 0.5)
    goal = peak if schedule == "even" else 2 * (1 - p) * peak
    return max(0, min(math.ceil((goal - n * share) / share - 1e-9), most - n))


@dataclass(frozen=True, slots=True)
class Dars:
    """A first round at the strategy's width, then more rollouts for every prompt solved less than half the time.

    The effect lives in the sum over samples: an averaging per prompt cancels it ("fixed" or "token" keeps it). The
    pass rate that decides is measured on rollouts that also train; advantages come from the pooled group.
    """

    name: ClassVar[str] = "dars"
    paper: ClassVar[str] = "2508.13755"
    needs: ClassVar[frozenset[str]] = frozenset()
    schedule: Schedule = "even"
    """"even" (ET, equal treatment) or "hard" (HW, hardness weighted)."""
    most: int = 0
    """Most rollouts of a prompt; 0 = 4 times the strategy's width (even) or 8 times (hard), the paper's 32 and 64."""
    scaled: bool = False
    """Whether the credit divides by the group's standard deviation."""

    def __post_init__(self) -> None:
        if self.schedule not in ("even", "hard"):
            raise ControlError(f'dars: schedule={self.schedule!r} is unknown; choose "even" or "hard"')

    def start(self) -> Nothing:
        """It learns nothing across steps."""
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        """Two rounds."""
        most = self.most or step.width * (4 if self.schedule == "even" else 8)
        first = yield [Order(prompt) for prompt in step.take()]
        orders: list[Order] = []
        for d in first:
            more = top_up(d.rate, d.n, self.schedule, scaled=self.scaled, most=most) if d.n else 0
            if more:
                orders.append(
                    Order(
                        d.order.prompt, more, last=True,
                        why=f"{d.solved:g} of {d.n} solved: filled up ({self.schedule})",
                    )
                )  # fmt: skip
        if orders:
            yield orders


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
                 check="rolltree_papers.dars.study:dars"),
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
        counter=Counter("optim/updates", rest=1.0),
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
