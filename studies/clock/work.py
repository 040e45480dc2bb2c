"""What there is to do: lengths from heavy-tailed distributions, in turns, with answers of an environment between
them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np


class Distribution(Protocol):
    """A distribution of lengths, as a function of a standard normal deviate."""

    @property
    def name(self) -> str:
        """What tables call it."""
        ...

    def length(self, z: float) -> float:
        """Tokens; increases with z."""
        ...


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Median and the standard deviation of the logarithm."""

    median: float = 2000.0
    sigma: float = 1.0
    name: str = "log-normal"

    def length(self, z: float) -> float:
        """exp(log median + σ z)."""
        return self.median * math.exp(self.sigma * z)


@dataclass(frozen=True, slots=True)
class Pareto:
    """P(length > x) = (least / x)^alpha."""

    least: float = 1100.0
    alpha: float = 1.5
    name: str = "Pareto"

    def length(self, z: float) -> float:
        """The quantile of Φ(z)."""
        above = max(0.5 * math.erfc(z / math.sqrt(2)), 1e-300)
        return self.least * above ** (-1 / self.alpha)


@dataclass(frozen=True, slots=True)
class Constant:
    """Every rollout has the same length."""

    tokens: float = 3000.0
    name: str = "constant"

    def length(self, z: float) -> float:
        """The same for every z."""
        return self.tokens


class Job(NamedTuple):
    """One rollout's work: tokens of each turn, and seconds that the environment takes after each but the last."""

    turns: tuple[int, ...]
    waits: tuple[float, ...] = ()
    fails: bool = False
    """Whether it fails at its end."""
    reads: tuple[int, ...] = ()
    """Tokens of the answers of the environment, which are prefilled; none where it is empty."""
    verify: float = 0.0
    """Seconds that a verifier takes at its end."""
    pool: str = ""
    """Which pool of engines it belongs to; "" = any."""


class WorkItem(NamedTuple):
    """One prompt's work."""

    jobs: tuple[Job, ...]
    slowness: float
    """The prompt's own share of what makes lengths differ, a standard normal deviate."""


class Work(Protocol):
    """Items by number, which may fail."""

    @property
    def failing(self) -> float:
        """Share of rollouts that fail."""
        ...

    def item(self, number: int, rollouts: int) -> WorkItem:
        """A prompt's jobs: the same number gives the same item."""
        ...


@dataclass(frozen=True, slots=True)
class Workload:
    """Items by number: the same number gives the same item, whatever the schedule and in whatever order it asks."""

    distribution: Distribution = LogNormal()
    alike: float = 0.5
    """Share of the variance of z that rollouts of one prompt have in common."""
    cap: int = 16384
    """Longest rollout in tokens."""
    turns: int = 1
    wait: float = 0.0
    """Mean seconds of an environment's answer."""
    wait_sigma: float = 1.0
    """Their distribution is log-normal, with this standard deviation of the logarithm."""
    failing: float = 0.0
    """Share of rollouts that fail."""
    seed: int = 0

    def item(self, number: int, rollouts: int) -> WorkItem:
        """Jobs of a prompt; a rollout's job depends on its place alone."""
        rng = np.random.default_rng((self.seed, number))
        mine = float(rng.standard_normal())
        own = rng.standard_normal((rollouts, self.turns))
        fails = rng.random(rollouts) < self.failing
        jobs: list[Job] = []
        for place in range(rollouts):
            z = math.sqrt(self.alike) * mine + math.sqrt(1 - self.alike) * float(own[place, 0])
            length = min(max(round(self.distribution.length(z)), self.turns), self.cap)
            whole, rest = divmod(length, self.turns)
            shift = math.log(self.wait) - self.wait_sigma**2 / 2 if self.wait else 0.0
            waits = tuple(math.exp(shift + self.wait_sigma * float(w)) for w in own[place, 1:]) if self.wait else ()
            turns = tuple(whole + (k < rest) for k in range(self.turns))
            jobs.append(Job(turns, waits or (0.0,) * (self.turns - 1), bool(fails[place])))
        return WorkItem(tuple(jobs), mine)
