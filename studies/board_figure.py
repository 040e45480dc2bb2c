"""The figure of a board: a panel for each arm, its curve over seeds beside the baseline's."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rolltree.lab.compare import Comparison
from rolltree.lab.curves import band
from rolltree.lab.report import shown
from rolltree.lab.trace import Trace
from rolltree.line_colours import task_colour
from studies.exact.chart import DARK

WIDE, HIGH, GAP, ACROSS = 150, 110, 34, 5
GREY = "#9a9a9a"


def figure(result: Comparison) -> str:
    """A panel for each arm: its mean and range over seeds in the task's colour, and the baseline's mean."""
    on, base = result.conditions, result.of(result.arms[0].label)
    every = [y for a in result.arms for t in result.of(a.label) for y in t.curve("pass@1")[1]]
    low, high = min(every), max(every)
    ends, colour = (float(low), float(high)), task_colour(on.task)
    rows = -(-len(result.arms) // ACROSS)
    width, height = ACROSS * (WIDE + GAP) + 40, rows * (HIGH + GAP + 14) + 44
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="10">',
        DARK,
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="40" y="18" font-size="13" font-weight="bold">Held-out pass@1 against decoded tokens, '
        f"{escape(on.task)}</text>",
    ]
    for i, arm in enumerate(result.arms):
        left, top = 40 + (i % ACROSS) * (WIDE + GAP), 46 + (i // ACROSS) * (HIGH + GAP + 14)
        out += _panel(arm.label, result.of(arm.label), base, left, top, on.budget, ends, colour)
    return "\n".join([*out, "</svg>"]) + "\n"


def _panel(
    name: str, traces: Sequence[Trace], base: Sequence[Trace], left: int, top: int, budget: float,
    ends: tuple[float, float], colour: str,
) -> list[str]:  # fmt: skip
    low, high = ends

    def path(x: Sequence[float], y: Sequence[float]) -> str:
        spots = [f"{left + WIDE * a / budget:.1f} {top + HIGH * (high - b) / (high - low):.1f}"
                 for a, b in zip(x, y, strict=True)]  # fmt: skip
        return "M" + "L".join(spots)

    mine, theirs = band(traces, "pass@1", until=budget, points=30), band(base, "pass@1", until=budget, points=30)
    across, up = mine.x.tolist(), mine.high.tolist()
    return [
        f'<text x="{left}" y="{top - 6}" font-size="11" font-weight="bold">{escape(name)}</text>',
        f'<path d="M{left} {top}V{top + HIGH}H{left + WIDE}" fill="none" stroke="#57606a"/>',
        f'<text x="{left - 4}" y="{top + 8}" text-anchor="end">{high:.0%}</text>',
        f'<text x="{left - 4}" y="{top + HIGH}" text-anchor="end">{low:.0%}</text>',
        f'<text x="{left + WIDE}" y="{top + HIGH + 12}" text-anchor="end">{shown(budget, "count")}</text>',
        f'<path d="{path([*across, *across[::-1]], [*mine.low.tolist(), *up[::-1]])}Z" fill="{colour}" '
        'fill-opacity="0.15"/>',
        f'<path d="{path(theirs.x.tolist(), theirs.mean.tolist())}" fill="none" stroke="{GREY}" stroke-width="1.5"/>',
        f'<path d="{path(across, mine.mean.tolist())}" fill="none" stroke="{colour}" stroke-width="2"/>',
    ]
