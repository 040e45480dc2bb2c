"""A trained run as the lab reads it: measurements along its costs, and what each held-out item got at the end.

Nothing here knows how runs are made. `rolltree.compare.train_runner` makes them with the training loop; any other
program can write the same JSON and be compared, drawn and judged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from rolltree.compare.names import row_name
from rolltree.compare.stats.paired import Floats
from rolltree.errors import RolltreeError
from rolltree.tree.store.atomic import new_file
from rolltree.tree.store.values import read_json

Axis = Literal["decoded", "trained", "seconds"]
AXES: tuple[Axis, ...] = get_args(Axis)

AXIS_NAMES: Mapping[Axis, str] = {"decoded": "decoded tokens", "trained": "trained tokens", "seconds": "seconds"}


class LabError(RolltreeError, ValueError):
    """An experiment cannot be run or read as asked; names what and the way out."""


@dataclass(frozen=True, slots=True)
class TraceTally:
    """What one held-out item got: how many samples, how many right, how many different answers."""

    samples: int
    right: int
    unique: int = 0

    @property
    def rate(self) -> float:
        """Share of its samples that are right."""
        return self.right / self.samples


@dataclass(frozen=True)
class Trace:
    """One finished run. Each row holds the three costs so far and whatever was measured there (keys may differ).

    Rows have metrics under their whole names; to make a trace or to ask it the last part is enough (`pass@1`).
    """

    label: str
    """The arm it belongs to: a recipe, or a recipe with knobs of a sweep."""
    seed: int
    rows: tuple[Mapping[str, float], ...]
    items: Mapping[str, TraceTally] = field(default_factory=dict[str, TraceTally])
    """Final held-out samples by item id."""
    folder: str = ""
    """Where the run itself lies, for `rolltree card` and a closer look."""
    first: Mapping[str, TraceTally] = field(default_factory=dict[str, TraceTally])
    """Held-out samples before the first step, by item id: which items were hard for the policy all arms start from."""

    def __post_init__(self) -> None:
        rows = tuple({row_name(name): value for name, value in row.items()} for row in self.rows)
        object.__setattr__(self, "rows", rows)

    @property
    def evaluations(self) -> list[Mapping[str, float]]:
        """The rows of evaluations on held-out items."""
        return [row for row in self.rows if row_name("pass@1") in row]

    def curve(self, metric: str, axis: Axis = "decoded") -> tuple[Floats, Floats]:
        """Costs and values of the rows that measured this metric, in order of cost."""
        name = row_name(metric)
        pairs = [(r[axis], r[name]) for r in self.rows if name in r and np.isfinite(r[name])]
        if not pairs:
            raise LabError(
                f"run {self.label!r}, seed {self.seed}, never measured {metric!r}; it has: {', '.join(self.metrics())}"
            )
        x, y = np.asarray(sorted(pairs), np.float64).T
        return x, y

    def metrics(self) -> list[str]:
        """Names of everything measured at least once."""
        return sorted({name for row in self.rows for name in row} - set(AXES))

    def mean(self, metric: str) -> float | None:
        """Plain mean of a metric over the run, None when it was never measured."""
        name = row_name(metric)
        seen = [r[name] for r in self.rows if name in r and np.isfinite(r[name])]
        return float(np.mean(seen)) if seen else None

    def hard(self) -> float | None:
        """pass@1 at the end on the third of the held-out items that the first policy solved least; None where the
        evaluations had no items in common. The items are the same for all arms of a seed."""
        known = sorted(self.first.keys() & self.items.keys(), key=lambda i: (self.first[i].rate, i))
        third = known[: -(-len(known) // 3)]
        return float(np.mean([self.items[i].rate for i in third])) if third else None

    def total(self, name: str) -> float | None:
        """Sum over the steps of what each spent; None when it was never measured."""
        seen = [r[name] for r in self.rows if name in r and np.isfinite(r[name])]
        return float(np.sum(seen)) if seen else None

    def cost(self, axis: Axis) -> float:
        """What the whole run cost."""
        return max((r[axis] for r in self.rows if axis in r), default=0.0)


def save_trace(trace: Trace, path: Path) -> None:
    """Write a trace as JSON, all or nothing."""
    write_json(path, asdict(trace))


def load_trace(path: Path) -> Trace:
    """Read a trace; a file that is not one is named with the reason."""
    try:
        raw = cast(dict[str, Any], read_json(path.read_text()))
        return Trace(
            label=str(raw["label"]),
            seed=int(raw["seed"]),
            rows=tuple({str(k): float(v) for k, v in row.items()} for row in raw["rows"]),
            items={str(k): TraceTally(**v) for k, v in raw["items"].items()},
            folder=str(raw.get("folder", "")),
            first={str(k): TraceTally(**v) for k, v in raw.get("first", {}).items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LabError(f"cannot read the trace {path}: {error}; delete the file to run it again") from error


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically: a reader sees the old file or the new one, never half of one. NaN is refused."""
    text = json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    with new_file(path, overwrite=True) as sink:
        sink.write(text)


def by_seed(traces: Sequence[Trace], label: str) -> dict[int, Trace]:
    """The traces of one arm by seed."""
    return {t.seed: t for t in traces if t.label == label}
