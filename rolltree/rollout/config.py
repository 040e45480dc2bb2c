"""What collecting rollouts needs to know of a run."""

from __future__ import annotations

from dataclasses import dataclass

from rolltree.errors import RolltreeError


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
