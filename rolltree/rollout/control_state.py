"""A run's control with what it has learned: what the loop keeps, checkpoints and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rolltree.control.history import History
from rolltree.control.plan import Control
from rolltree.tree.store.values import dumps, loads


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
