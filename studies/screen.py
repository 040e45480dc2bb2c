"""What a table hands on to a confirmation: rows that may be better, as a preregistration that waits to be committed.

A screen decides nothing. It drops what is unlikely to be better (one-sided p above DROP) or never acted, and keeps the
likeliest of the rest, at most as many as one family may hold; `python -m studies.power` simulates screen and
confirmation together. The file is a proposal: move it to `studies/preregistered`, say why, commit it, and run
`python -m studies.confirm NAME`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rolltree.compare.trace import write_json
from studies.power import ALPHA, CANDIDATES, DROP, LOOKS
from studies.preregistration import FRESH
from studies.tables import TableArm

LEAST = 0.04
"""The effect that a confirmation is powered for, as a share."""


@dataclass(frozen=True, slots=True)
class Screened:
    """One row of a column, as its table judged it."""

    arm: TableArm
    p: float
    """One-sided: of no gain over the baseline."""
    acted: bool


def candidates(rows: Sequence[Screened]) -> list[TableArm]:
    """The rows that are handed on, likeliest first."""
    kept = sorted((row for row in rows if row.acted and row.p <= DROP), key=lambda row: row.p)
    return [row.arm for row in kept[:CANDIDATES]]


def propose(path: Path, regime: str, baseline: TableArm, rows: Sequence[Screened], why: str) -> list[TableArm]:
    """Write the preregistration that a screen suggests; none where nothing is handed on."""
    chosen = candidates(rows)
    if chosen:
        write_json(path, {
            "regime": regime, "why": why, "baseline": _told(baseline), "claims": [_told(arm) for arm in chosen],
            "least": LEAST, "first_seed": FRESH, "looks": list(LOOKS), "alpha": ALPHA,
        })  # fmt: skip
    else:
        path.unlink(missing_ok=True)
    return chosen


def _told(arm: TableArm) -> dict[str, Any]:
    return {"label": arm.label, "recipe": arm.recipe} | ({"knobs": list(arm.knobs)} if arm.knobs else {})
