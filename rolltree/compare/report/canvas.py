"""Curves in the terminal: lines on a canvas of braille dots, two by four to a character cell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.text import Text

from rolltree.compare.report.page import Chart, PlotSeries, shown

COLOURS = ("cyan", "dark_orange", "green", "magenta", "yellow", "red", "blue", "white")
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float]) -> str:
    """A row of bars, one a value, from the smallest to the largest; a gap where a value is not finite."""
    x = np.asarray(values, np.float64)
    if not np.isfinite(x).any():
        return ""
    low, high = float(np.nanmin(x)), float(np.nanmax(x))
    scaled = (x - low) / (high - low if high > low else 1.0)
    return "".join(_BARS[min(7, int(v * 8))] if np.isfinite(v) else " " for v in scaled)


def draw(chart: Chart, width: int = 72, height: int = 12) -> Text:
    """A chart as text: axis labels, one colour a line, a legend below; of several lines each has its letter on it."""
    series = [s for s in chart.series if len(s.x)]
    if not series:
        return Text("nothing was measured", style="dim")
    (x0, x1), (y0, y1) = _range([v for s in series for v in s.x]), _range([v for s in series for v in s.y])
    kind = "share" if chart.percent else "number"
    labels = {0: shown(y1, kind), height - 1: shown(y0, kind)}
    gutter = max(map(len, labels.values()))
    inner = max(10, width - gutter - 2)
    cells, owner = np.zeros((height, inner), np.int32), np.full((height, inner), -1)
    for index, one in enumerate(series):
        _trace(one, cells, owner, index, (x0, x1, y0, y1))
    letters = _letters(cells, owner, len(series)) if len(series) > 1 else {}
    text = Text()
    for row in range(height):
        text.append(f"{labels.get(row, ''):>{gutter}} ", style="dim")
        text.append("│", style="dim")
        for column, (cell, who) in enumerate(zip(cells[row], owner[row], strict=True)):
            sign = letters.get((row, column)) or (chr(0x2800 + int(cell)) if cell else " ")
            text.append(sign, style=COLOURS[int(who) % 8] if who >= 0 else "")
        text.append("\n")
    left, right = shown(x0, "count"), f"{shown(x1, 'count')} {chart.x_title}"
    text.append(" " * (gutter + 2) + left + " " * max(1, inner - len(left) - len(right)) + right + "\n", style="dim")
    for index, one in enumerate(series):
        sign = _LETTERS[index % 26] if letters else "━"
        text.append(f"{' ' * (gutter + 2) if index == 0 else '   '}{sign} {one.name}", style=COLOURS[index % 8])
    return text


def _letters(cells: np.ndarray, owner: np.ndarray, count: int) -> dict[tuple[int, int], str]:
    """Where the letters of lines stand: on cells of their own, so that lines are told apart without colours."""
    found: dict[tuple[int, int], str] = {}
    for index in range(count):
        own = np.argwhere((owner == index) & (cells > 0))
        own = own[np.argsort(own[:, 1], kind="stable")]
        # Four letters a line, each line's a little further on than the line's before.
        for part in range(4):
            if len(own):
                row, column = own[int((part + (index + 1) / (count + 1)) / 4 * len(own))]
                found[int(row), int(column)] = _LETTERS[index % 26]
    return found


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low, low + 1.0)


def _trace(
    series: PlotSeries, cells: np.ndarray, owner: np.ndarray, index: int, box: tuple[float, float, float, float]
) -> None:  # fmt: skip
    """Set the dots of one line, a column of dots at a time, joined vertically so that steep parts have no holes."""
    x0, x1, y0, y1 = box
    height, width = cells.shape
    x, y = np.asarray(series.x, np.float64), np.asarray(series.y, np.float64)
    columns = np.rint((x - x0) / (x1 - x0) * (2 * width - 1)).astype(int)
    across = np.arange(columns.min(), columns.max() + 1)
    at = np.interp(across / (2 * width - 1) * (x1 - x0) + x0, x, y)
    rows = np.clip(np.rint((y1 - at) / (y1 - y0) * (4 * height - 1)).astype(int), 0, 4 * height - 1)
    before = rows[0]
    for column, row in zip(across, rows, strict=True):
        low, high = sorted((int(row), int(before)))
        for dot in range(low + (row > before), high + (row >= before)) or (int(row),):
            cells[dot // 4, column // 2] |= _BITS[dot % 4][column % 2]
            owner[dot // 4, column // 2] = index
        before = row
