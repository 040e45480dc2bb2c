"""What came of preregistered confirmations, as pages tell it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rolltree.compare.stats import Asked, Interval, corrected

ENDING = ".result.json"


@dataclass(frozen=True, slots=True)
class ConfirmedClaim:
    """A claim after the last look that was taken."""

    label: str
    verdict: str
    seeds: int
    effect: Interval
    """The paired difference with the interval that its family leaves it."""
    q: float
    collapsed: int | None
    """Runs that did; None where it was not kept."""

    @property
    def points(self) -> float:
        """The difference, in points."""
        return 100 * self.effect.estimate


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
    asked = [Asked(tuple(map(float, c["differences"])), least=float(raw["least"]), pool="points")
             for c in raw["claims"]]  # fmt: skip
    claims = tuple(
        ConfirmedClaim(str(c["label"]), str(c["verdict"]), int(c["seeds"]), one.effect, one.p_bh, c.get("collapsed"))
        for c, one in zip(raw["claims"], corrected(asked), strict=True)
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
        "that together spend α ([how](../howto/regimes.md#confirmation)); intervals stand where Holm's procedure puts "
        "them over the claims of a regime, q is Benjamini and Hochberg's. *open* waits for a further look."
    )
    head = ["regime", "claim", "difference in points", "q", "seeds", "collapsed", "verdict", "preregistered"]
    rows = [head, ["---"] * len(head)]
    for f in found:
        seeds, commit = f"of {f.looks[-1]}", f"`{f.preregistered[:8]}`"
        rows += [[f.regime, c.label, _span(c.effect), f"{c.q:.2g}", f"{c.seeds} {seeds}",
                  "–" if c.collapsed is None else str(c.collapsed), c.verdict, commit] for c in f.claims]  # fmt: skip
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"## Confirmations {{ #confirmations }}\n\n{about}\n\n{table}\n"


def _span(e: Interval) -> str:
    return f"{100 * e.estimate:+.1f} ({100 * e.low:+.1f} to {100 * e.high:+.1f})"
