"""What was observed of every prompt, arm by arm: the record that estimators, plans and metrics read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rolltree.control.order import PLAIN, Delivery
from rolltree.tree.values import storable

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
