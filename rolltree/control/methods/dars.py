"""Difficulty-adaptive rollouts: hard prompts get the rollouts that give them the same advantage mass (DARS)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.control.order import ControlError, Order
from rolltree.control.plan import Nothing, Plan, Step

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
