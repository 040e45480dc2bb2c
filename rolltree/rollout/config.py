"""What collecting rollouts needs to know of a run: its knobs, and its control with what it has learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rolltree.control.history import History
from rolltree.control.plan import Control
from rolltree.errors import RolltreeError
from rolltree.tree.store.values import dumps, loads

# A run's control with what it has learned: what the loop keeps, checkpoints and reports.


@dataclass(slots=True)
class ControlState:
    """A control, its state, and the history of every prompt."""

    control: Control
    state: Any = None
    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        if self.state is None:
            self.state = self.control.start()

    def state_dict(self) -> dict[str, Any]:
        """What must survive, as text that reads back to equal objects."""
        return {"state": dumps(self.state), "history": dumps(self.history)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to that."""
        self.state, self.history = loads(state["state"]), loads(state["history"])


# What collecting rollouts needs to know of a run.


class RolloutError(RolltreeError):
    """Rollouts cannot start or go on: names the thing, the value and the way out."""


@dataclass(frozen=True, slots=True)
class RolloutConfig:
    """The knobs of one run's rollouts; a training run has them among its own (`TrainConfig.rollouts`)."""

    prompts: int = 16
    """Groups of a batch."""
    seed: int = 0
    temperature: float = 1.0
    max_tokens: int | None = None
    """Most policy tokens per path; None = the task's own."""
