"""Runs as a whole: their settings in a few words, their curves, their steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from rolltree.metrics.log import MetricsError, read_metrics
from rolltree.metrics.registry import find, value_in
from rolltree.view.links import ViewError
from rolltree.view.source import RunSource

Axis = Literal["step", "decoded", "seconds"]
AXES: dict[Axis, str] = {"step": "step", "decoded": "decoded tokens", "seconds": "seconds of training"}
FIRST = ("eval/pass@1", "reward/mean", "policy/entropy", "rollout/length", "reward/zero_variance")
"""Curves shown before any is chosen, as far as runs have them."""


@dataclass(frozen=True)
class Summary:
    """A run in one row."""

    name: str
    kind: str
    facts: dict[str, str]
    trouble: str
    """Why it cannot be read; "" when it can."""


@dataclass(frozen=True)
class Line:
    """One curve of one run."""

    run: str
    x: tuple[float, ...]
    y: tuple[float, ...]


def lines_of(source: RunSource) -> list[dict[str, Any]]:
    """All whole lines of a run's metrics; none where it has not finished a step."""
    path = source.inside("metrics.jsonl") if source.kind == "run" else None
    if path is None or not path.is_file():
        return []
    try:
        return read_metrics(path)
    except (OSError, MetricsError) as error:
        raise ViewError(str(error)) from None


def summary(source: RunSource) -> Summary:
    """A run in a few facts; trouble is told, not raised, so that other runs still show."""
    try:
        return Summary(source.name, source.kind, _facts(source), "")
    except (ViewError, OSError) as error:
        return Summary(source.name, source.kind, {}, str(error))


def metric_names(runs: Sequence[list[dict[str, Any]]]) -> list[str]:
    """Everything measured in any of some runs."""
    return sorted({k for lines in runs for line in lines for k in line if k not in ("kind", "step")})


def tooltip(metric: str) -> str:
    """What a metric is, in a sentence; "" for a name that is not registered."""
    found = find(metric)
    return "" if found is None else f"{found.about} ({found.unit})"


def chosen(names: Sequence[str], asked: Sequence[str]) -> list[str]:
    """The curves asked for that exist, or the first ones worth a look."""
    return [n for n in asked if n in names] or [n for n in FIRST if n in names][:4] or list(names[:4])


def curve(run: str, lines: Sequence[dict[str, Any]], metric: str, axis: Axis) -> Line:
    """A metric of one run along an axis; lines that did not measure it are left out."""
    x: list[float] = []
    y: list[float] = []
    cost = 0.0
    for line in lines:
        here = _cost(line, axis) if line["kind"] == "train" else None
        cost = cost if here is None else here
        value = value_in(line, metric)
        if isinstance(value, (int, float)) and math.isfinite(value):
            x.append(float(line["step"]) if axis == "step" else cost)
            y.append(float(value))
    return Line(run, tuple(x), tuple(y))


@dataclass(frozen=True)
class ShownStep:
    """One step of a run."""

    step: int | None
    numbers: dict[str, float]
    saved: bool
    """Whether its rollouts can be opened."""


STEP_NUMBERS = ("reward/mean", "reward/solved", "policy/entropy", "rollout/length", "reward/zero_variance",
                "rollout/failed", "rollout/truncated", "budget/leaves", "budget/decoded",
                "policy/mismatch")  # fmt: skip


def steps(source: RunSource) -> list[ShownStep]:
    """The steps of a run, newest first: measured ones, and those whose rollouts were saved."""
    saved = set(source.steps())
    out: dict[int | None, ShownStep] = {step: ShownStep(step, {}, True) for step in saved}
    for line in lines_of(source):
        if line["kind"] == "train":
            numbers = {n: float(v) for n in STEP_NUMBERS if isinstance(v := value_in(line, n), (int, float))}
            out[line["step"]] = ShownStep(line["step"], numbers, line["step"] in saved)
    return sorted(out.values(), key=lambda s: -1 if s.step is None else s.step, reverse=True)


def _facts(source: RunSource) -> dict[str, str]:
    lines = lines_of(source)
    train = [line for line in lines if line["kind"] == "train"]
    task: Any = source.config.get("task", "")
    out = {
        "recipe": _recipe(source.config),
        "task": " ".join(str(t) for t in cast("list[Any]", task)) if isinstance(task, list) else str(task),
        "model": str(source.config.get("model", "")),
        "steps": str(train[-1]["step"]) if train else "0",
    }
    for name in ("reward/mean", "eval/pass@1", "budget/decoded_total"):
        line = next((x for x in reversed(lines) if x.get(name) is not None), None)
        if line is not None:
            out[name] = f"{line[name]:,.0f}" if name.startswith("budget/") else f"{line[name]:.3g}"
    if source.kind == "run" and not lines and not source.steps():
        out["state"] = "nothing yet"
    return out if source.kind == "run" else {"forests": "of another program" if source.kind == "nodes" else "saved"}


def _recipe(config: dict[str, Any]) -> str:
    parts: Any = config.get("parts", {})
    return str(cast("dict[str, Any]", parts).get("name", "")) if isinstance(parts, dict) else ""


def _cost(line: dict[str, Any], axis: Axis) -> float | None:
    value = line.get({"step": "step", "decoded": "budget/decoded_total", "seconds": "time/total"}[axis])
    return float(value) if isinstance(value, (int, float)) else None
