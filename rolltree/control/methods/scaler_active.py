"""A fixed number of environments that supply a step's prompts, and when one of them makes room for another (SCALER)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rolltree.tree.values import storable

EDGE = 1e-9


@storable
@dataclass(slots=True)
class Environment:
    """A generator of instances whose difficulty follows the policy (arXiv 2601.04809)."""

    levels: list[int] = field(default_factory=list[int])
    """Levels seen of it, in order."""
    level: float = 0.0
    """Where it stands, between two of them or on one."""
    visits: int = 0
    rates: list[float] = field(default_factory=list[float])
    """Its accuracies since it became active, oldest first."""
    steps: list[float] = field(default_factory=list[float])
    """Where it stood after each of these visits."""

    def know(self, level: int) -> None:
        """Another level that there is. An environment begins at its lowest."""
        if level not in self.levels:
            self.levels = sorted([*self.levels, level])
            self.level = self._inside(self.level) if self.visits else float(self.levels[0])

    def forget(self, level: int) -> None:
        """A level that there is no more."""
        self.levels = [known for known in self.levels if known != level]
        if self.levels:
            self.level = self._inside(self.level)

    def around(self) -> tuple[int, int, float]:
        """The known levels below and above where it stands, and how far it is from the lower to the upper."""
        low = max((known for known in self.levels if known <= self.level + EDGE), default=self.levels[0])
        high = min((known for known in self.levels if known > low), default=low)
        return low, high, (self.level - low) / (high - low) if high > low else 0.0

    def split(self, count: int, rng: np.random.Generator) -> dict[int, int]:
        """Instances per level: the upper one for the fraction of the way to it, the rest by chance."""
        low, high, share = self.around()
        exact = count * share
        above = int(exact + EDGE)
        above += int(above < count and rng.random() < exact - above)
        return {level: n for level, n in ((low, count - above), (high, above)) if n}

    def accuracy(self, rates: dict[int, float]) -> float:
        """Accuracy where it stands, between those of the levels beside it; one alone speaks for both."""
        weight = {level: max(1 - abs(self.level - level) / self._gap(), EDGE) for level in rates}
        return sum(weight[level] * rate for level, rate in rates.items()) / sum(weight.values())

    def move(self, rate: float, gain: float, target: float, most: float) -> None:
        """One step of the proportional controller, within the levels there are."""
        self.level = self._inside(self.level + min(max(gain * (rate - target), -most), most))
        self.visits += 1
        self.rates.append(rate)
        self.steps.append(self.level)

    def leave(self) -> None:
        """Make room for another: the history is cleared, the level stays."""
        self.rates, self.steps = [], []

    def _inside(self, level: float) -> float:
        return float(min(max(level, self.levels[0]), self.levels[-1]))

    def _gap(self) -> float:
        low, high, _ = self.around()
        return max(high - low, 1)


def finished(env: Environment, patience: int, window: int, slope: float | None) -> str:
    """Why an environment should make room; "" while it should stay.

    It never succeeds, it stands at its highest level, or it no longer rises: the slope of a line through where it stood
    over the last `window` visits is at most `slope` (None = it may rest on a plateau).
    """
    last = env.rates[-patience:]
    if len(last) == patience and max(last) <= 0:
        return f"nothing solved in {patience} visits"
    if len(last) == patience and min(env.steps[-patience:]) >= env.levels[-1]:
        return f"at its highest level for {patience} visits"
    if slope is not None and len(env.steps) >= window:
        found = float(np.polyfit(np.arange(window), env.steps[-window:], 1)[0])
        if found <= slope + EDGE:
            return f"its level no longer rises ({found:+.3f} a visit)"
    return ""
