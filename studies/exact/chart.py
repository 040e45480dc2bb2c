"""Line charts as plain SVG text: small, diffable, without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#57606a", "#bf3989", "#0a7ea4")

DARK = "<style>@media (prefers-color-scheme: dark) { svg { filter: invert(0.9) hue-rotate(180deg) } }</style>"
"""Stands in every figure: on a dark page its light and dark change places, and its colours keep their hue."""


def lines(
    title: str,
    x_name: str,
    y_name: str,
    series: Mapping[str, Sequence[tuple[float, float, float]]],
    *,
    log: bool = True,
    colours: Mapping[str, str] | None = None,
) -> str:
    """An SVG of lines through (x, y, error of y). Logarithmic axes leave out points at or below 0.

    `colours` gives lines their colours by name; without it lines have different ones.
    """
    scale, back = (math.log, math.exp) if log else (float, float)
    points = [(x, y) for values in series.values() for x, y, _ in values if y > 0 or not log]
    x0, x1 = min(scale(x) for x, _ in points), max(scale(x) for x, _ in points)
    y0, y1 = min(scale(y) for _, y in points), max(scale(y) for _, y in points)
    y0, y1 = (y0 - 0.1, y1 + 0.1) if log else (min(y0, 0.0), y1 + 0.05 * (y1 - y0))

    def at(x: float, y: float) -> tuple[float, float]:
        return 60 + 380 * (scale(x) - x0) / max(x1 - x0, 1e-9), 290 - 240 * (scale(y) - y0) / (y1 - y0)

    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 340" font-family="sans-serif" font-size="12">',
        DARK,
        '<rect width="640" height="340" fill="white"/>',
        f'<text x="60" y="24" font-size="14" font-weight="bold">{escape(title)}</text>',
        '<path d="M60 40V290H450" fill="none" stroke="#57606a"/>',
        f'<text x="250" y="328" text-anchor="middle">{escape(x_name)}</text>',
        f'<text x="16" y="165" transform="rotate(-90 16 165)" text-anchor="middle">{escape(y_name)}</text>',
    ]
    for x in sorted({x for x, _ in points}) if log else [back(x0 + (x1 - x0) * k / 4) for k in range(5)]:
        out.append(f'<text x="{at(x, back(y0))[0]:.0f}" y="306" text-anchor="middle">{x:g}</text>')
    for k in range(4):
        y = back(y0 + (y1 - y0) * k / 3)
        out.append(f'<text x="54" y="{at(back(x0), y)[1] + 4:.0f}" text-anchor="end">{y:.2g}</text>')
    for i, (name, values) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)] if colours is None else colours[name]
        here = [(x, y, e) for x, y, e in values if y > 0 or not log]
        path = " ".join(f"{'ML'[k > 0]}{at(x, y)[0]:.1f} {at(x, y)[1]:.1f}" for k, (x, y, _) in enumerate(here))
        out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y, e in here:
            low, high = at(x, max(y - e, back(y0)))[1], at(x, y + e)[1]
            out.append(f'<path d="M{at(x, y)[0]:.1f} {low:.1f}V{high:.1f}" stroke="{colour}"/>')
            out.append(f'<circle cx="{at(x, y)[0]:.1f}" cy="{at(x, y)[1]:.1f}" r="3" fill="{colour}"/>')
        out.append(f'<text x="465" y="{60 + 18 * i}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"
