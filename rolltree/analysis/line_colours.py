"""Colours of lines, on light and dark ground, and the one colour that a task has in every figure, report and page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from zlib import crc32

LINES = ("#3b8fc4", "#dd7a2f", "#3d9f6b", "#b065b1", "#b8952a", "#d2566b", "#6478d3", "#868d95")
TASKS: Mapping[str, str] = dict(
    zip(("countdown", "arithmetic", "grid", "calculator", "lookup", "sql", "digits"), LINES, strict=False)
)
"""Task → colour; other tasks have one by their name."""


def task_colour(task: str) -> str:
    """The colour of a task, whatever is written before or behind its name: `mixed:grid`, `grid 2`, `grid, level 2`."""
    name = re.split(r"[?, ]", task, maxsplit=1)[0]
    return TASKS.get(name.rpartition(":")[2]) or LINES[crc32(name.encode()) % len(LINES)]
