"""All metrics by name: what the docs, the viewer's tooltips, the doctor and comparisons read.

    from rolltree.metrics.registry import metric_of

    metric_of("reward/zero_variance").about

Numbers of another policy in the run stand under the actor it writes as: `peer/optim/loss`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from rolltree.errors import unknown
from rolltree.metrics.catalogue import budget, evaluation, optim, policy, reward, rollout, staleness, time
from rolltree.metrics.metric import GROUPS, Metric

METRICS: tuple[Metric, ...] = tuple(
    m for module in (reward, rollout, policy, optim, budget, time, staleness, evaluation) for m in module.METRICS
)
"""Every metric, by group."""
WHOLE = "rollout/submitted"
"""Stands in every line of a training step, so that what is left out beside it was 0 and not unmeasured."""


@cache
def find(name: str) -> Metric | None:
    """The metric of a name, also one under an actor's; None where there is none."""
    actor, slash, rest = name.partition("/")
    if slash and actor not in GROUPS and rest.partition("/")[0] in GROUPS:
        return find(rest)
    fits = [m for m in METRICS if m.matches(name)]
    return min(fits, key=lambda m: (m.is_pattern, m.own), default=None)


def sparse(name: str) -> bool:
    """Whether a line that does not hold the metric means 0."""
    found = find(name)
    return found is not None and found.sparse


def value_in(line: Mapping[str, Any], name: str) -> Any:
    """A metric in a line of a training step; None where the step did not measure it."""
    if name not in line and WHOLE in line and sparse(name):
        return 0.0
    return line.get(name)


def without_zeros(numbers: Mapping[str, float]) -> dict[str, float]:
    """Numbers without the zeros that say nothing (`Metric.sparse`)."""
    return {name: value for name, value in numbers.items() if value or not sparse(name)}


def metric_of(name: str) -> Metric:
    """The metric of a name; refuses one that is not registered, with the nearest known."""
    found = find(name)
    if found is None:
        raise unknown("metric", name, [m.name for m in METRICS])
    return found
