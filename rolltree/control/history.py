"""What was observed of every prompt, arm by arm: the record that estimators, plans and metrics read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from rolltree.control.order import PLAIN, Delivery
from rolltree.tree.store.values import storable

# Discounted Beta posteriors of pass rates: evidence fades, because it was gathered from an older policy.


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


BANDS = ("new", "never", "hard", "even", "easy", "always")
"""Difficulty bands: never seen; pass rate 0; below 1/3; up to 2/3; below 1; 1."""


def band(rate: float | None) -> str:
    """The band of a pass rate; None = the prompt was never seen."""
    if rate is None:
        return "new"
    if rate <= 0 or rate >= 1:
        return "never" if rate <= 0 else "always"
    return "hard" if rate < 1 / 3 else "even" if rate <= 2 / 3 else "easy"


@storable
@dataclass(slots=True)
class Tally:
    """Rollouts of one prompt in one arm."""

    seen: int = 0
    solved: float = 0.0
    recent: list[float] = field(default_factory=list[float])
    """The latest outcomes, oldest first."""
    tokens: int = 0
    last_step: int = 0

    @property
    def rate(self) -> float:
        """Pass rate over the latest outcomes."""
        return sum(self.recent) / len(self.recent)


@storable
@dataclass(slots=True)
class History:
    """Tallies by prompt and arm. The prompts seen longest ago are forgotten beyond `most`."""

    window: int = 16
    most: int = 50_000
    arms: dict[str, dict[str, Tally]] = field(default_factory=dict[str, dict[str, Tally]])
    """Prompt → arm → tally, in order of last sight."""

    def observe(self, deliveries: Iterable[Delivery], step: int) -> None:
        """Take note; each delivery counts in its own arm only."""
        for d in deliveries:
            uid = d.order.prompt.uid
            of_prompt = self.arms.pop(uid, {})
            self.arms[uid] = of_prompt
            tally = of_prompt.setdefault(d.order.arm, Tally())
            tally.seen += d.n
            tally.solved += d.solved
            tally.recent = [*tally.recent, *(min(max(r, 0.0), 1.0) for r in d.rewards)][-self.window :]
            tally.tokens += d.decoded
            tally.last_step = step
        while len(self.arms) > self.most:
            del self.arms[next(iter(self.arms))]

    def tally(self, uid: str, arm: str = PLAIN) -> Tally | None:
        """What is known of a prompt in an arm; None = no outcome yet."""
        found = self.arms.get(uid, {}).get(arm)
        return found if found is not None and found.recent else None

    def rate(self, uid: str) -> float | None:
        """Recent unassisted pass rate; None = never seen."""
        found = self.tally(uid)
        return None if found is None else found.rate
