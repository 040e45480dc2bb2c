"""Requests as they come: bursts of a Poisson process, scenarios with prefixes of their own, heavy-tailed lengths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from studies.clock.engine import Running
from studies.clock.work import Distribution, LogNormal


@dataclass(frozen=True, slots=True)
class Scenario:
    """Requests of one kind: they begin with the same tokens."""

    share: float
    """Of all requests."""
    prefix: int
    """Tokens that all its prompts begin with."""
    prompt: Distribution
    """Tokens after the prefix."""
    output: Distribution


CHAT = (
    Scenario(0.4, 1000, LogNormal(300.0, 0.8), LogNormal(250.0, 0.8)),
    Scenario(0.3, 2500, LogNormal(400.0, 0.8), LogNormal(120.0, 0.8)),
    Scenario(0.2, 4000, LogNormal(800.0, 0.8), LogNormal(60.0, 0.8)),
    Scenario(0.1, 500, LogNormal(1500.0, 0.8), LogNormal(400.0, 0.8)),
)
"""Four scenarios with round numbers: chat, an assistant with tools, questions about documents, summaries."""
MOST = 8192
"""Tokens at which prompts and outputs are cut."""


@dataclass(slots=True, eq=False, kw_only=True)
class Ask(Running):
    """A request; `left` is its output, `context` its prompt with the prefix."""

    arrives: float
    scenario: int
    prefix: int
    output: int
    first: float = math.inf
    """When its first token is there."""
    ended: float = math.inf
    begun_again: int = 0
    """How often its tokens were lost and it began anew."""
    moved: int = 0
    """How often it went on elsewhere with its keys and values."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests of so many seconds."""

    rate: float
    """Requests per second, mean."""
    seconds: float = 60.0
    scenarios: Sequence[Scenario] = CHAT
    burst: float = 4.0
    """Times the quiet rate in a burst; 1 = none."""
    bursts: float = 0.2
    """Share of the time that bursts take, in spells of `spell` seconds."""
    spell: float = 3.0
    profile: Sequence[float] = field(default=(1.0,))
    """Factors of the rate over equal parts of the time: tides."""

    def asks(self, seed: int) -> list[Ask]:
        """The same seed gives the same requests."""
        rng = np.random.default_rng((seed, 1241))
        spells = math.ceil(self.seconds / self.spell)
        high = rng.random(spells) < self.bursts
        factor = np.where(high, self.burst, 1.0) / (self.bursts * self.burst + 1 - self.bursts)
        tide = np.array([self.profile[min(int(k * len(self.profile) / spells), len(self.profile) - 1)]
                         for k in range(spells)])  # fmt: skip
        counts = rng.poisson(self.rate * self.spell * factor * tide)
        times = np.concatenate([k * self.spell + np.sort(rng.random(n)) * self.spell for k, n in enumerate(counts)])
        shares = np.array([s.share for s in self.scenarios])
        kinds = rng.choice(len(self.scenarios), len(times), p=shares / shares.sum())
        deviates = rng.standard_normal((len(times), 2))
        out: list[Ask] = []
        for k, (time, kind) in enumerate(zip(times.tolist(), kinds.tolist(), strict=True)):
            scenario = self.scenarios[kind]
            prompt = min(max(round(scenario.prompt.length(float(deviates[k, 0]))), 1), MOST)
            output = min(max(round(scenario.output.length(float(deviates[k, 1]))), 1), MOST)
            out.append(Ask(
                id=k, left=output, context=scenario.prefix + prompt, arrives=time, scenario=kind,
                prefix=scenario.prefix, output=output,
            ))  # fmt: skip
        return out
