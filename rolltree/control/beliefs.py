"""Discounted Beta posteriors of pass rates: evidence fades, because it was gathered from an older policy."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rolltree.tree.values import storable


@storable
@dataclass(slots=True)
class Beliefs:
    """A Beta posterior per prompt (VADE, arXiv 2511.18902).

    Evidence is multiplied by `visit` when a prompt is visited again and by `idle` with every step that passes, so that
    the posterior falls back to the prior and its mass stays bounded by n / (1 − visit). Both factors are
    reconstructed; 1 and 1 never forget.
    """

    visit: float = 0.9
    idle: float = 0.995
    right: float = 1.0
    """First parameter of the prior."""
    wrong: float = 1.0
    step: int = 0
    """The step it is now; whoever plans sets it."""
    held: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Prompt → successes, failures (discounted) and the step they were last touched in."""

    def observe(self, uid: str, solved: float, n: int) -> None:
        """Add the outcomes of a visit; a visit without outcomes changes nothing."""
        if n:
            a, b = self._evidence(uid)
            self.held[uid] = [self.visit * a + solved, self.visit * b + n - solved, float(self.step)]

    def at(self, uid: str) -> tuple[float, float]:
        """Parameters of the posterior now."""
        a, b = self._evidence(uid)
        return self.right + a, self.wrong + b

    def mean(self, uid: str) -> float:
        """Expected pass rate."""
        a, b = self.at(uid)
        return a / (a + b)

    def variance(self, uid: str) -> float:
        """Variance of the posterior."""
        a, b = self.at(uid)
        return a * b / ((a + b) ** 2 * (a + b + 1))

    def draw(self, uid: str, rng: np.random.Generator) -> float:
        """A pass rate from the posterior (Thompson)."""
        return float(rng.beta(*self.at(uid)))

    def __contains__(self, uid: str) -> bool:
        return uid in self.held

    def _evidence(self, uid: str) -> tuple[float, float]:
        a, b, last = self.held.get(uid, (0.0, 0.0, float(self.step)))
        fade = self.idle ** (self.step - last)
        return a * fade, b * fade
