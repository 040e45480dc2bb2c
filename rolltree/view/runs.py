"""Runs as a whole: their settings in a few words, their curves, their steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from rolltree.analysis.source import RunSource, ViewError
from rolltree.metrics.log import MetricsError, read_metrics
from rolltree.metrics.registry import find, value_in
from rolltree.view.settings import settings_of
from rolltree.view.state import State, state_of

Axis = Literal["step", "decoded", "seconds"]
AXES: dict[Axis, str] = {"step": "step", "decoded": "decoded tokens", "seconds": "seconds of training"}
FIRST = ("eval/pass@1", "reward/mean", "policy/entropy", "rollout/length", "reward/zero_variance")
"""Curves shown before any is chosen, as far as runs have them."""
POINTS = 1000
"""Points of a curve that are drawn; a screen has no room for more."""
ROWS = 500
"""Steps in one table; older ones are a page further."""
MANY = 10**9
"""As many steps as this or more are no number of steps: the run has another limit."""


COLUMNS = ("recipe", "task", "model", "seed", "knobs", "step", "eval/pass@1", "reward/mean", "budget/decoded_total")
"""Columns of the table of runs before any is chosen, as far as runs have them."""
PLAIN = ("recipe", "task", "model", "seed", "knobs", "step", "forests")
"""Columns that are no metrics."""


@dataclass(frozen=True)
class Summary:
    """A run in one row."""

    name: str
    kind: str
    facts: dict[str, str]
    trouble: str
    """Why it cannot be read; "" when it can."""
    state: State = ""


@dataclass(frozen=True)
class Line:
    """One curve of one run, with the ends of its intervals where they were measured."""

    run: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


def lines_of(source: RunSource) -> list[dict[str, Any]]:
    """All whole lines of a run's metrics; none where it has not finished a step."""
    path = source.inside("metrics.jsonl") if source.kind == "run" else None
    if path is None or not path.is_file():
        return []
    try:
        found = path.stat()
        return _lines(path, found.st_mtime_ns, found.st_size)
    except (OSError, MetricsError) as error:
        raise ViewError(str(error)) from None


@lru_cache(maxsize=32)
def _lines(path: Path, changed: int, size: int) -> list[dict[str, Any]]:
    del changed, size  # parts of the key: a page reads a file once, and again when it has grown
    return read_metrics(path)


def summary(source: RunSource, columns: Sequence[str] = COLUMNS) -> Summary:
    """A run in a few facts; trouble is told, not raised, so that other runs still show."""
    state = state_of(source)
    try:
        return Summary(source.name, source.kind, _facts(source, columns), "", state)
    except (ViewError, OSError) as error:
        return Summary(source.name, source.kind, {}, str(error), state)


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
    ends: list[tuple[float, float]] = []
    cost = 0.0
    for line in lines:
        here = _cost(line, axis) if line["kind"] == "train" else None
        cost = cost if here is None else here
        value = value_in(line, metric)
        if isinstance(value, (int, float)) and math.isfinite(value):
            x.append(float(line["step"]) if axis == "step" else cost)
            y.append(float(value))
            low, high = line.get(f"{metric}_low"), line.get(f"{metric}_high")
            if isinstance(low, (int, float)) and isinstance(high, (int, float)):
                ends.append((float(low), float(high)))
    if len(ends) < len(y) or not y:
        return Line(run, tuple(x), tuple(y))
    return Line(run, tuple(x), tuple(y), tuple(low for low, _ in ends), tuple(high for _, high in ends))


def thinned(line: Line, most: int = POINTS) -> Line:
    """At most so many points of a curve: of each stretch the lowest and the highest, so that no spike is lost."""
    if len(line.y) <= most:
        return line
    stretches, kept = most // 2 - 1, [0]
    for i in range(stretches):
        at = range(i * len(line.y) // stretches, (i + 1) * len(line.y) // stretches)
        kept += sorted({min(at, key=line.y.__getitem__), max(at, key=line.y.__getitem__)})
    kept = sorted({*kept, len(line.y) - 1})
    x, y, low, high = (tuple(a[i] for i in kept) if a else () for a in (line.x, line.y, line.low, line.high))
    return Line(line.run, x, y, low, high)


def smoothed(line: Line, width: int) -> Line:
    """The means of `width` values around each; as many on either side, fewer at both ends. Without intervals."""
    half = (width - 1) // 2
    if half < 1 or len(line.y) < 3:
        return line
    sums = [0.0]
    for value in line.y:
        sums.append(sums[-1] + value)
    out: list[float] = []
    for i in range(len(line.y)):
        near = min(half, i, len(line.y) - 1 - i)
        out.append((sums[i + near + 1] - sums[i - near]) / (2 * near + 1))
    return Line(line.run, line.x, tuple(out))


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


def steps(source: RunSource, columns: Sequence[str] = STEP_NUMBERS) -> list[ShownStep]:
    """The steps of a run, newest first: measured ones, and those whose rollouts were saved."""
    saved = set(source.steps())
    out: dict[int | None, ShownStep] = {step: ShownStep(step, {}, True) for step in saved}
    for line in lines_of(source):
        if line["kind"] == "train":
            numbers = {n: float(v) for n in columns if isinstance(v := value_in(line, n), (int, float))}
            out[line["step"]] = ShownStep(line["step"], numbers, line["step"] in saved)
    return sorted(out.values(), key=lambda s: -1 if s.step is None else s.step, reverse=True)


def window(found: Sequence[ShownStep], before: int | None = None) -> tuple[list[ShownStep], int | None]:
    """The newest steps before one, as many as a table shows, and before which the next ones stand; None = no more."""
    below = [s for s in found if before is None or s.step is None or s.step < before]
    shown = below[:ROWS]
    return shown, shown[-1].step if len(below) > len(shown) else None


def _facts(source: RunSource, columns: Sequence[str]) -> dict[str, str]:
    if source.kind != "run":
        return {"forests": "of another program" if source.kind == "nodes" else "saved"}
    lines = lines_of(source)
    train = [line for line in lines if line["kind"] == "train"]
    given = settings_of(source.config)
    whole = given.steps if given.steps is not None and given.steps < MANY else None
    done = str(train[-1]["step"]) if train else "0"
    out = {
        "recipe": given.recipe, "task": given.task, "model": given.model, "seed": given.seed,
        "knobs": " ".join(f"{name}={value}" for name, value in given.knobs),
        "step": f"{done} of {whole}" if whole is not None else done,
    }  # fmt: skip
    out |= {name: found for name in columns if name not in PLAIN and (found := latest(lines, name))}
    return {name: value for name, value in out.items() if value}


def latest(lines: Sequence[dict[str, Any]], metric: str) -> str:
    """The last value of a metric, with its interval where one was measured; "" where it never was."""
    for line in reversed(lines):
        value = line.get(metric)
        if isinstance(value, (int, float)):
            low, high = line.get(f"{metric}_low"), line.get(f"{metric}_high")
            shown = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
            return f"{shown} ({low:.2f}–{high:.2f})" if low is not None and high is not None else shown
    return ""


def _cost(line: dict[str, Any], axis: Axis) -> float | None:
    value = line.get({"step": "step", "decoded": "budget/decoded_total", "seconds": "time/total"}[axis])
    return float(value) if isinstance(value, (int, float)) else None
