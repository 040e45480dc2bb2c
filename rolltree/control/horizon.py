"""The horizon of a rollout: how often the environment answers, and how many tokens the policy may write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.order import ControlError, Order
from rolltree.control.plan import Nothing, Plan, Step


@dataclass(frozen=True, slots=True)
class Horizon:
    """The next prompts of the stream, each rollout with at most `turns` environment steps and `tokens` of the policy;
    evaluations have the task's own.

    A recipe's schedule for either is a curriculum on the horizon. Neither makes a rollout longer than the run allows.
    """

    name: ClassVar[str] = "horizon"
    paper: ClassVar[str] = "2506.07976"
    needs: ClassVar[frozenset[str]] = frozenset()
    turns: int = 10
    """Most environment steps of a rollout; 0 = as many as the task allows."""
    tokens: int = 0
    """Most policy tokens of a rollout; 0 = as many as the run allows."""

    def __post_init__(self) -> None:
        for knob in ("turns", "tokens"):
            if getattr(self, knob) < 0:
                raise ControlError(f"horizon: {knob}={getattr(self, knob)} is below 0; give 0 for no bound of its own")

    def start(self) -> Nothing:
        """It learns nothing across steps."""
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        """One round."""
        turns, limit = self.turns or None, self.tokens or None
        yield [Order(prompt, limit=limit, turns=turns, last=True) for prompt in step.take()]
