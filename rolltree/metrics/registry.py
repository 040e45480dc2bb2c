"""The reference of every metric, written from the registry: `python -m rolltree.metrics.registry`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rolltree.errors import unknown
from rolltree.metrics.catalogue import METRICS
from rolltree.metrics.metric import GROUPS, Metric

# All metrics by name: what the docs, the viewer's tooltips, the doctor and comparisons read.
#
# from rolltree.metrics.registry import metric_of
#
# metric_of("reward/zero_variance").about
#
# Numbers of another policy in the run stand under the actor it writes as: `peer/optim/loss`.

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


HEAD = """\
# Metrics

Written from the code by `python -m rolltree.metrics.registry`.

Every number of a run has one name: in `metrics.jsonl`, in trackers (TensorBoard, wandb, trackio), in comparisons, in
the doctor and in the viewer. The first word says what it is about. A part in angle brackets is open:
`reward/part/<part>` stands for one metric of each part of a reward. Numbers of another policy in the run stand under
the actor it writes as, such as `peer/optim/loss`.

A metric that cannot be measured in a step is left out, never guessed. Metrics marked *0 is left out* are always
measured, and a step in which they are 0 does not write them.
"""

COLUMNS = "| metric | unit | what it is | better | computed by |\n|---|---|---|---|---|"


def reference() -> str:
    """The page."""
    parts = [HEAD]
    for group, about in GROUPS.items():
        rows = [_row(m) for m in METRICS if m.group == group]
        parts += [
            f"## {group}",
            "",
            about,
            "",
            "| metric | unit | what it is | better | computed by |",
            "|---|---|---|---|---|",
        ]
        parts += [*rows, ""]
    return "\n".join(parts)


def _row(m: Metric) -> str:
    about = m.about + (" *0 is left out.*" if m.sparse else "")
    return f"| `{m.name}` | {m.unit} | {about.replace('|', '&#124;')} | {m.better or '–'} | `{m.where}` |"


if __name__ == "__main__":
    Path("docs/metrics.md").write_text(reference(), encoding="utf-8")
