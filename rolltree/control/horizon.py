"""The horizon of a rollout: how often the environment answers before it must have ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.order import ControlError, Order
from rolltree.control.plan import Nothing, Plan, Step


@dataclass(frozen=True, slots=True)
class Horizon:
    """The next prompts of the stream, each rollout with at most `turns` environment steps; evaluations have the task's.

    A recipe's schedule for `turns` is a curriculum on the horizon.
    """

    name: ClassVar[str] = "horizon"
    paper: ClassVar[str] = "2506.07976"
    needs: ClassVar[frozenset[str]] = frozenset()
    turns: int = 10
    """Most environment steps of a rollout."""

    def __post_init__(self) -> None:
        if self.turns < 1:
            raise ControlError(f"horizon: turns={self.turns} lets no environment answer; give 1 or more")

    def start(self) -> Nothing:
        """It learns nothing across steps."""
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        """One round."""
        yield [Order(prompt, turns=self.turns, last=True) for prompt in step.take()]
