"""The page of `studies.exact.staleness`: tables of medians and ranges, and a plot without dependencies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import median

from studies.exact.chart import DARK

Cells = Sequence[Sequence[Sequence[float]]]
"""Row → column → one value per problem."""

PANELS = {
    "bias": "Bias of the mean gradient / ‖∇J‖",
    "deviation": "Standard deviation / ‖∇J‖",
    "efficiency": "Efficiency: 1 is the exact direction without noise",
}
COLOURS = (
    "#7f7f7f", "#111111", "#1f77b4", "#d62728", "#17becf", "#2ca02c", "#98df8a", "#ff9896", "#9467bd", "#ff7f0e",
    "#8c564b",
)  # fmt: skip
WIDTH, HEIGHT, LEFT, TOP, GAP = 300, 240, 44, 34, 34


@dataclass(frozen=True)
class Results:
    """What the page shows."""

    names: Sequence[str]
    """The objectives: rows of all tables but the first."""
    lags: Sequence[int]
    tables: Mapping[str, Cells]
    """The panels' names and "gap", "ess", "value" (one row each)."""
    train_lags: Sequence[int]
    learned: Cells
    rollouts: int
    problems: int


def write_page(folder: Path, results: Results) -> Path:
    """Write `staleness.md` and `staleness.svg` and return the path of the page."""
    names, lags, tables = results.names, results.lags, results.tables
    folder.mkdir(parents=True, exist_ok=True)
    middle = {name: [[median(cell) for cell in row] for row in tables[name]] for name in PANELS}
    (folder / "staleness.svg").write_text(_svg(names, lags, middle), encoding="utf-8")
    drift = [[*tables[field][0]] for field in ("gap", "ess", "value")]
    labels = [
        "mean gap of log π and log μ per action",
        "effective share of whole-path weights",
        "expected reward under μ",
    ]
    parts = [
        "# Objectives under staleness, exactly",
        "Regenerate with `python -m studies.exact.staleness`. "
        f"Chains of 8 actions out of 3, {results.problems} problems; "
        "cells are the median over problems, with the smallest and largest in brackets. μ is the "
        "distribution that sampled, `lag` versions of a REINFORCE run behind π. All moments are sums over the 6,561 "
        "paths.",
        "![Bias, deviation and efficiency against lag](staleness.svg)",
        "## How far behind", _table("lag", lags, labels, drift),
    ]  # fmt: skip
    for name, title in PANELS.items():
        note = "" if name == "bias" else f" ({results.rollouts} rollouts)"
        parts += [f"## {title}{note}", _table("objective", lags, names, tables[name])]
    parts += [
        "## Learning from stale rollouts",
        "Expected reward averaged over 100 steps of 32 rollouts at the same learning rate, from the uniform policy.",
        _table("objective", results.train_lags, names, results.learned),
    ]
    path = folder / "staleness.md"
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


def _table(corner: str, columns: Sequence[int], rows: Sequence[str], cells: Cells) -> str:
    head = f"| {corner} | " + " | ".join(f"lag {c}" for c in columns) + " |"
    rule = "|---|" + "---:|" * len(columns)
    body = [
        f"| {name} | " + " | ".join(_cell(cell) for cell in row) + " |" for name, row in zip(rows, cells, strict=True)
    ]
    return "\n".join([head, rule, *body])


def _cell(values: Sequence[float]) -> str:
    low, mid, high = (f"{x:.2f}" for x in (min(values), median(values), max(values)))
    return mid if low == high else f"{mid} [{low}, {high}]"


def _svg(names: Sequence[str], lags: Sequence[int], tables: dict[str, list[list[float]]]) -> str:
    total = LEFT + len(tables) * (WIDTH + GAP)
    height = TOP + HEIGHT + 40 + 18 * math.ceil(len(names) / 4)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {height}" '
        'font-family="system-ui, sans-serif" font-size="11">',
        DARK,
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for place, (name, rows) in enumerate(tables.items()):
        out += _panel(PANELS[name], lags, rows, LEFT + place * (WIDTH + GAP), ceiling=3.0)
    for i, name in enumerate(names):
        x, y = LEFT + (i % 4) * (total - LEFT) / 4, TOP + HEIGHT + 48 + 18 * (i // 4)
        out.append(f'<rect x="{x:.0f}" y="{y - 8}" width="16" height="4" fill="{COLOURS[i % len(COLOURS)]}"/>')
        out.append(f'<text x="{x + 22:.0f}" y="{y - 2}">{escape(name)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def _panel(title: str, lags: Sequence[int], rows: Sequence[Sequence[float]], left: float, ceiling: float) -> list[str]:
    """One chart; values above the ceiling run out of the top, which the title says."""
    most = max(max(row) for row in rows)
    top = min(most, ceiling)
    cut = f" (cut at {ceiling:g})" if most > ceiling else ""

    def x(i: int) -> float:
        return left + i * WIDTH / max(len(lags) - 1, 1)

    def y(value: float) -> float:
        return TOP + HEIGHT * (1 - min(value, top) / top)

    out = [f'<text x="{left}" y="18" font-weight="600">{escape(title)}{cut}</text>']
    for k in range(5):
        value = top * k / 4
        out.append(f'<path d="M{left} {y(value):.1f}h{WIDTH}" stroke="#e4e4e4" fill="none"/>')
        out.append(f'<text x="{left - 4}" y="{y(value) + 4:.1f}" text-anchor="end" fill="#666">{value:.2g}</text>')
    for i, lag in enumerate(lags):
        out.append(f'<text x="{x(i):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle" fill="#666">{lag}</text>')
    for n, row in enumerate(rows):
        points = " ".join(f"{x(i):.1f},{y(value):.1f}" for i, value in enumerate(row))
        out.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[n % len(COLOURS)]}" stroke-width="1.8"/>')
    return out
