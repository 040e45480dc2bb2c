"""Who does what the scheduler decides: real engines, or a heap of simulated events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from rolltree.control.schedule.rollout import Group, Rollout

Finish = Literal["done", "abort", "failed"]
"""How a rollout ended: whole, stopped, or broken."""


class Executor(Protocol):
    """Who does the work. No call reports back before it returns; what was asked for is reported later, once."""

    def start(self, rollout: Rollout) -> None:
        """Begin a rollout, or go on after the tokens that it has. Ends in `ended`."""
        ...

    def abort(self, rollouts: Sequence[Rollout]) -> None:
        """Stop rollouts under way; each ends in `ended` with what it made, or whole if it was too late.

        The same one may be named twice and still ends once.
        """
        ...

    def train(self, batch: Sequence[Group]) -> None:
        """Update the weights. Ends in `trained`."""
        ...

    def publish(self, version: int) -> None:
        """Give the engines the new weights. Ends in `published`."""
        ...
