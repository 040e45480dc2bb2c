"""Runs with a known truth: learning curves from a formula with noise shared by the arms of a seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rolltree.compare.runner import Conditions, Spec, Tick
from rolltree.compare.stats.paired import t_quantile
from rolltree.compare.trace import LabError, Trace


@dataclass
class Simulated:
    """`gains` maps a recipe to the height its curve reaches above the start at the budget."""

    gains: Mapping[str, float]
    noise: float = 0.01
    made: list[tuple[str, int]] = field(default_factory=list)
    stop_after: int | None = None
    steps: int = 8

    def check(self, spec: Spec) -> None:
        if spec.arm.recipe not in self.gains:
            raise LabError(f"unknown recipe {spec.arm.recipe!r}")

    def made_of(self, spec: Spec) -> Iterable[Any]:
        return (t_quantile,)

    def run(self, spec: Spec, folder: Path, tick: Tick) -> Trace:
        if self.stop_after is not None and len(self.made) >= self.stop_after:
            raise KeyboardInterrupt
        self.made.append((spec.arm.label, spec.seed))
        return simulate(
            spec, self.gains[spec.arm.recipe] + dict(spec.arm.knobs).get("bonus", 0), self.noise, self.steps, tick
        )


def simulate(spec: Spec, gain: float, noise: float, steps: int = 8, tick: Tick = lambda cost, doing: None) -> Trace:
    shared = np.random.default_rng([7, spec.seed]).normal(0, 0.05)
    own = np.random.default_rng([spec.seed, *spec.arm.label.encode()])
    rows = []
    for i in range(steps + 1):
        share = i / steps
        cost = 1.02 * share * spec.conditions.budget
        tick(cost, spec.arm.label)
        rate = 0.2 + shared + gain * share + own.normal(0, noise)
        rows.append({
            "decoded": cost, "trained": cost / 2, "seconds": cost / 1000, "pass@1": rate,
            f"pass@{spec.conditions.eval_samples}": rate + 0.2, "mean": rate, "zero_variance": 0.3, "unique": 0.5,
            "sharing": 1.0 + gain,
        })  # fmt: skip
    return Trace(spec.arm.label, spec.seed, tuple(rows), folder="")


def conditions(**changes) -> Conditions:
    return Conditions(**{"task": "countdown", "budget": 10_000.0, **changes})
