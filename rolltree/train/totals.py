"""What a run has used up, and where a step's time went."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rolltree.control.ledger import RESOURCES, Budget
from rolltree.control.ledger import Spent as BudgetSpent


@dataclass(slots=True)
class RunTotals:
    """What a run has used up, earlier parts of a resumed run included."""

    decoded: int = 0
    prefilled: int = 0
    env_steps: int = 0
    judge_calls: int = 0
    leaves: int = 0
    seconds: float = 0.0

    def add(self, budget: Budget, before: BudgetSpent | None = None) -> dict[str, float]:
        """Book what a step's budget spent, since `before` where it is not the step's own; returns it."""
        spent = budget.spent
        numbers = {n: getattr(spent, n) - (getattr(before, n) if before else 0) for n in RESOURCES}
        for name, value in numbers.items():
            setattr(self, name, getattr(self, name) + value)
        roles = {
            f"budget/role/{role}": float(tokens - (before.by_role.get(role, 0) if before else 0))
            for role, tokens in spent.by_role.items()
        }
        return {f"budget/{n}": float(v) for n, v in numbers.items()} | roles


class StepClock:
    """Laps of a step."""

    def __init__(self) -> None:
        self._at = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """Time since the last lap belongs to this name."""
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._at
        self._at = now
