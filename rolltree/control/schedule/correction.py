"""What the objective is to do about old tokens: named here with the schedule, built where objectives are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class ScheduleCorrection:
    """An importance weight π_proximal/π_sampled and its bounds, in the knobs of the objective `ImportanceWeight`."""

    bound: Literal["none", "truncate", "mask"] = "none"
    """`none` = no weight: old tokens are trained as if the proximal policy had sampled them."""
    unit: Literal["token", "sequence", "geometric"] = "token"
    low: float = 0.0
    high: float = 2.0
    decoupled: bool = False
    """Whether the surrogate clips against a proximal policy of its own (AReaL, arXiv 2505.24298, eq. 5) and does the
    weighing too: the objective `decoupled` with these knobs."""

    def knobs(self) -> dict[str, Any]:
        """Knobs for `ImportanceWeight` or, if decoupled, for the objective `decoupled`; none without a weight."""
        if self.bound == "none":
            return {}
        return {"unit": self.unit, "bound": self.bound, "low": self.low, "high": self.high}
