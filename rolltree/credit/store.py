"""A baseline per prompt that outlives the step: a forgetful Beta posterior of the success rate."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class BetaStore:
    """value = α / (α + β) per key; each outcome first decays both by ρ (MSSR, arXiv:2512.18215).

    The weight of the past settles at 1 / (1 − ρ) outcomes. ρ follows the mean KL by which the policy moved in the last
    `window` steps, which `move` is told: `most` at rest down to `least` at the target KL and beyond. (The released rule
    is not monotone: it forgets fastest when the policy stands still.)
    """

    least: float = 0.875
    most: float = 0.96
    target: float = 0.01
    window: int = 20
    moves: list[float] = field(default_factory=list[float])
    """KL of the latest steps, oldest first."""
    counts: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])

    def value(self, key: str, unseen: float = 0.5) -> float:
        """The success rate expected of a key, before its next outcome is told."""
        if key not in self.counts:
            return unseen
        a, b = self.counts[key]
        return a / (a + b)

    def start(self, key: str, rate: float) -> None:
        """Begin a key at a rate measured beforehand, with the weight of 1 / (1 − least) outcomes."""
        weight = 1 / (1 - self.least)
        self.counts[key] = (weight * rate, weight * (1 - rate))

    def move(self, kl: float) -> None:
        """Tell how far the policy moved in a step."""
        self.moves = [*self.moves, kl][-self.window :]

    @property
    def forgetting(self) -> float:
        """ρ, what an outcome leaves of the counts before it."""
        moved = sum(self.moves) / len(self.moves) if self.moves else 0.0
        return self.most - min(max(moved, 0.0) / self.target, 1.0) * (self.most - self.least)

    def update(self, key: str, success: bool) -> None:
        """Tell an outcome; read `value` first."""
        if key not in self.counts:
            self.start(key, 0.5)
        a, b = self.counts[key]
        keep = self.forgetting
        self.counts[key] = (keep * a + success, keep * b + (not success))
