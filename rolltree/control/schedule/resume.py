"""What happens to rollouts under way when weights change, and to the tokens they have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tokens = Literal["keep", "mask", "turn", "restart", "drop"]
Update = Literal["interrupt", "wait", "run on"]


@dataclass(frozen=True, slots=True)
class Resume:
    """Stopped rollouts go on, begin again or are dropped.

    `keep`: go on after their tokens, which carry their own version (AReaL, APRIL). `mask`: the same, but only tokens
    made since the last interruption are trained. `turn`: the unfinished turn is made again (ROLL). `restart`: all of it
    is. `drop`: the whole group is thrown away.
    """

    tokens: Tokens = "keep"
    update: Update = "interrupt"
    """At an update of the weights, rollouts under way are interrupted, waited for, or run on while engines reload."""

    def kept(self, made: int, loose: int) -> int:
        """How many of a stopped rollout's tokens stay, given how many of them belong to an unfinished turn."""
        if self.tokens == "turn":
            return made - loose
        return made if self.tokens in ("keep", "mask") else 0
