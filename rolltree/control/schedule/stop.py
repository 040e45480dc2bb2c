"""When a batch is complete, what is in it, and what becomes of the rollouts that it did not wait for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from rolltree.control.order import ControlError


@dataclass(frozen=True, slots=True)
class Stop:
    """A batch is complete when enough finished groups may be taken. Which they are, and who is stopped for it."""

    order: Literal["created", "finished"] = "created"
    """Among more finished groups than needed, those started first or those finished first."""
    window: float | None = None
    """Windowed FIFO: only groups started within so many batches of the oldest one not yet collected may be taken, so
    fewer groups than that ever overtake a slow one; None = any number may."""
    abort: bool = False
    """Whether a complete batch stops everything else; it is carried over as `Resume` says (APRIL)."""
    spare: int = 0
    """Rollouts started per group beyond those wanted; the last ones are dropped (RollArt's redundancy)."""
    batch: Literal["groups", "plan"] = "groups"
    """`groups`: so many accepted groups make a batch, whoever asked for them, and a failed rollout is made again.
    `plan`: a batch is what the plan of its step delivered, once it is over (lock-step training). It may be short, what
    it has too much is dropped, and a failed rollout stays in its group without an outcome."""

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ControlError(f"stop: window={self.window} can never hold a batch; give a number of at least 1")
        if self.spare < 0:
            raise ControlError(f"stop: spare={self.spare} makes no sense; give 0 or a number of rollouts")

    def edge(self, head: int, batch: int) -> float:
        """Groups with a number below this may be taken; `head` is the oldest one not yet collected."""
        return math.inf if self.window is None else head + math.ceil(self.window * batch)
