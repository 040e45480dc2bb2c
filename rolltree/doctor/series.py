"""A number over the steps of a run, and the stretches of steps in which it stood beyond a threshold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from rolltree.doctor.finding import Severity
from rolltree.tree.table import Bools, Floats, Ints


class NotChecked(Exception):  # noqa: N818 - no error: a detector says what it lacks
    """A detector lacks its data; the message says which and how to have it."""


@dataclass(frozen=True, slots=True)
class Spell:
    """A stretch of steps in which a trailing mean stood beyond a threshold."""

    start: int
    until: int | None
    """Its last step; None when it reaches the end."""
    value: float
    """The mean farthest beyond."""
    worst: bool
    """Whether that is beyond the second threshold too."""

    @property
    def severity(self) -> Severity:
        """What is over is a note."""
        return "note" if self.until is not None else "critical" if self.worst else "warning"

    def covers(self, step: int) -> bool:
        """Whether a step lies in it."""
        return self.start <= step and (self.until is None or step <= self.until)


@dataclass(frozen=True, eq=False)
class Series:
    """Steps in order and a value at each; values that are not finite are left out by `series`."""

    name: str
    steps: Ints
    values: Floats

    def __len__(self) -> int:
        return len(self.steps)

    def trailing(self, window: int) -> Series:
        """Means over the last `window` points; over all of them where there are fewer. Full windows only."""
        wide = min(window, len(self))
        means = np.lib.stride_tricks.sliding_window_view(self.values, wide).mean(axis=1) if wide else self.values
        return Series(self.name, self.steps[max(wide - 1, 0) :], means)

    def beyond(self, limit: float, worse: float, window: int, *, below: bool = False) -> Spell | None:
        """The latest spell of trailing means above the limit (below it on request); `worse` is the second limit."""
        sign = -1.0 if below else 1.0
        means = self.trailing(window)
        return means.spell(sign * means.values > sign * limit, sign * worse, sign)

    def spell(self, bad: Bools, worse: float, sign: float = 1.0) -> Spell | None:
        """The latest run of points that are bad."""
        if not bad.any():
            return None
        last = int(np.flatnonzero(bad)[-1])
        good = np.flatnonzero(~bad[:last])
        first = int(good[-1]) + 1 if len(good) else 0
        far = float((sign * self.values[first : last + 1]).max())
        until = None if last == len(bad) - 1 else int(self.steps[last])
        return Spell(int(self.steps[first]), until, sign * far, far > worse)

    def start(self, window: int) -> float:
        """The mean over the first `window` points, which must be followed by as many more."""
        if len(self) < 2 * window:
            raise NotChecked(f"a trend of {self.name} needs {2 * window} steps, there are {len(self)}")
        return float(self.values[:window].mean())

    def relative(self, window: int) -> Series:
        """The later points as multiples of the mean over the first `window`."""
        start = self.start(window)
        if start == 0:
            raise NotChecked(f"{self.name} was 0 over the first {window} steps, so no ratio to it can be taken")
        return Series(self.name, self.steps[window:], self.values[window:] / start)

    def on(self, steps: Ints) -> Series:
        """The points at these steps, those without a value left out."""
        here = np.isin(self.steps, steps)
        return Series(self.name, self.steps[here], self.values[here])

    def only(self, keep: Bools) -> Series:
        """Some of the points."""
        return Series(self.name, self.steps[keep], self.values[keep])


def series(name: str, points: Iterable[tuple[int, float | None]]) -> Series:
    """A series of the points that have a finite value."""
    known = [(step, value) for step, value in points if value is not None and np.isfinite(value)]
    return Series(name, np.array([s for s, _ in known], np.int64), np.array([v for _, v in known], np.float64))


def together(*many: Series) -> tuple[Series, ...]:
    """Several series on the steps they share."""
    shared = many[0].steps
    for one in many[1:]:
        shared = np.intersect1d(shared, one.steps)
    if not len(shared):
        raise NotChecked(f"{' and '.join(one.name for one in many)} were never measured at the same step")
    return tuple(one.on(shared) for one in many)


def risen(s: Series, window: int) -> tuple[Floats, Floats]:
    """Trailing means less the mean of the first window, and the standard error of that difference.

    Both for the points from 2·window on, with the spread within the windows as noise.
    """
    start = s.start(window)
    windows = np.lib.stride_tricks.sliding_window_view(s.values, window)[window:]
    noise = np.sqrt((windows.var(axis=1, ddof=1) + s.values[:window].var(ddof=1)) / window)
    return windows.mean(axis=1) - start, noise
