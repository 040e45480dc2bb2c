"""The options of the verbs that sample with a policy as it stands: how tokens are drawn, and how many."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rolltree.amounts import Tokens
from rolltree.cli.common import at_least
from rolltree.errors import RolltreeError

if TYPE_CHECKING:
    from rolltree.engine.protocol import Sampling


@dataclass(frozen=True)
class SamplingArguments:
    """How rollouts are sampled."""

    temperature: float = 1.0
    """Of sampling; 0 is greedy."""
    top_p: float = 1.0
    """Sample from the most likely tokens that have this share of the probability; 1 = from all."""
    max_tokens: Tokens | None = None

    def check(self) -> None:
        """Refuse what could not be sampled."""
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise RolltreeError(
                f"--temperature {self.temperature} samples nothing; give a number of 0 (greedy) or more"
            )
        if not 0 < self.top_p <= 1:
            raise RolltreeError(f"--top-p {self.top_p} makes no sense; give a number above 0 and at most 1 (no limit)")
        if self.max_tokens is not None:
            at_least(1, max_tokens=self.max_tokens)

    def drawn(self) -> Sampling:
        """The defaults of every request."""
        from rolltree.engine.protocol import Sampling

        return Sampling(temperature=self.temperature, top_p=self.top_p)
