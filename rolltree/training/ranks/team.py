"""What a learner asks of the other ranks that make its steps with it; alone, it has all it needs already."""

from __future__ import annotations

from typing import Protocol, TypeVar

import torch

from rolltree.policy.protocol import Policy

T = TypeVar("T")


class Team(Protocol):
    """All ranks make each call at the same point of a step."""

    def share(self, mine: T) -> list[T]:
        """What every rank gave, in the order of ranks."""
        ...

    def unite(self, policy: Policy) -> None:
        """Have the policy ready to be read."""
        ...

    def reduce(self, policy: Policy) -> None:
        """Let every rank's gradient be its part of the sum of all."""
        ...

    def clip(self, policy: Policy, limit: float) -> float:
        """Scale a longer gradient down to this norm; returns the norm that it had."""
        ...


class Alone:
    """The only rank."""

    def share(self, mine: T) -> list[T]:
        """See `Team.share`."""
        return [mine]

    def unite(self, policy: Policy) -> None:
        """It is."""

    def reduce(self, policy: Policy) -> None:
        """There is one gradient."""

    def clip(self, policy: Policy, limit: float) -> float:
        """See `Team.clip`."""
        return float(torch.nn.utils.clip_grad_norm_(list(policy.parameters()), limit))


ALONE = Alone()
