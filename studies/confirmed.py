"""What came of preregistered confirmations, as pages tell it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

ENDING = ".result.json"


@dataclass(frozen=True, slots=True)
class ConfirmedClaim:
    """A claim after the last look that was taken."""

    label: str
    verdict: str
    seeds: int
    points: float
    """Mean paired difference, in points."""


@dataclass(frozen=True, slots=True)
class ConfirmedFamily:
    """The claims of one preregistration, judged together."""

    name: str
    regime: str
    preregistered: str
    """The commit that said beforehand what would be asked."""
    looks: tuple[int, ...]
    claims: tuple[ConfirmedClaim, ...]


def families(folder: Path) -> list[ConfirmedFamily]:
    """All that have a result, by name."""
    return [_family(path) for path in sorted(folder.glob(f"*{ENDING}"))]


def _family(path: Path) -> ConfirmedFamily:
    raw = cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))
    claims = tuple(
        ConfirmedClaim(str(c["label"]), str(c["verdict"]), int(c["seeds"]), 100 * float(c["mean"]))
        for c in raw["claims"]
    )
    name = path.name.removesuffix(ENDING)
    return ConfirmedFamily(name, str(raw["regime"]), str(raw["preregistered"]), tuple(raw["looks"]), claims)


def sentence(family: ConfirmedFamily) -> str:
    """What came out, verdict by verdict."""
    told: dict[str, list[str]] = {}
    for c in family.claims:
        told.setdefault("not decided yet" if c.verdict == "open" else c.verdict, []).append(
            f"{c.label} ({c.points:+.1f} points)"
        )
    said = "; ".join(f"{verdict}: {', '.join(who)}" for verdict, who in told.items())
    most = max(c.seeds for c in family.claims)
    return f"Preregistered and asked again on {most} fresh seeds, `{family.regime}` at the calibrated rate: {said}."


def section(found: list[ConfirmedFamily]) -> str:
    """A table of all families; nothing where none has a result."""
    if not found:
        return ""
    about = (
        "Claims that were written down and committed before their seeds ran, judged by Holm's procedure at looks "
        "that together spend α ([how](../howto/regimes.md#confirmation)). *open* waits for a further look."
    )
    rows = [["regime", "claim", "difference in points", "seeds", "verdict", "preregistered"], ["---"] * 6]
    for f in found:
        seeds, commit = f"of {f.looks[-1]}", f"`{f.preregistered[:8]}`"
        rows += [[f.regime, c.label, f"{c.points:+.1f}", f"{c.seeds} {seeds}", c.verdict, commit] for c in f.claims]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"## Confirmations {{ #confirmations }}\n\n{about}\n\n{table}\n"
