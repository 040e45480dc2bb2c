"""What a report says, before it is known how it will look: the same page becomes HTML or terminal output."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from rolltree.compare.report.branch import ReportTree
from rolltree.compare.stats import Outcome

Floats = Sequence[float]


def versions() -> tuple[tuple[str, str], ...]:
    """Rolltree, Python, the libraries numbers depend on, and the machine's kind."""
    names = ("rolltree", "torch", "numpy", "transformers")
    return (
        *((name, _version(name)) for name in names),
        ("python", platform.python_version()),
        ("machine", f"{platform.system()} {platform.machine()}"),
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed as a package"


@dataclass(frozen=True)
class PlotSeries:
    """One line of a chart: a mean with its band, and the single runs behind it."""

    name: str
    x: Floats
    y: Floats
    low: Floats = ()
    high: Floats = ()
    runs: Sequence[tuple[Floats, Floats]] = ()


@dataclass(frozen=True)
class Chart:
    """Some lines over one axis."""

    title: str
    x_title: str
    y_title: str
    series: Sequence[PlotSeries]
    percent: bool = False
    """Whether values are shares, shown as per cent."""
    target: float | None = None
    """A horizontal line to reach."""
    note: str = ""


@dataclass(frozen=True)
class ReportTable:
    """A table of ready-made texts; the first column names the row, the others are set flush right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class ReportFinding:
    """A verdict: its outcome as a badge and the whole sentence."""

    outcome: Outcome
    words: str


@dataclass(frozen=True)
class Page:
    """A report."""

    title: str
    lead: str
    """One or two sentences: what was done."""
    facts: Sequence[tuple[str, str]] = ()
    """Short names and values shown as a strip under the title."""
    findings: Sequence[ReportFinding] = ()
    charts: Sequence[Chart] = ()
    grids: Sequence[ReportTable] = ()
    trees: Sequence[ReportTree] = ()
    commands: Sequence[tuple[str, str]] = ()
    """What a command does, and the command."""
    notes: Sequence[str] = ()
    """How to read it: definitions and methods."""
    versions: Sequence[tuple[str, str]] = field(default_factory=versions)


def shown(value: float | None, kind: Literal["share", "number", "count", "seconds"] = "number") -> str:
    """A number as a person reads it: 41.3 %, 0.0123, 284k, 3 min 20 s; an en dash where there is none."""
    if value is None or math.isnan(value):
        return "–"
    if kind == "share":
        return f"{100 * value:.1f} %"
    if kind == "count":
        return _count(value)
    if kind == "seconds":
        return duration(value)
    return f"{value:.4g}"


def duration(seconds: float) -> str:
    """Seconds as hours, minutes or seconds, with two units at most."""
    whole = round(seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _count(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.4g}"
