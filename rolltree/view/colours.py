"""What colour stands for: the quantities nodes and tokens can be coloured by, their scales and palettes.

Palettes run through light middles, so that text on them reads in the light and in the dark; the two ends of each differ
in hue and in lightness from the middle, not by red against green alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rolltree.tree.shape import Floats

Colouring = Literal["reward", "entropy", "mismatch", "advantage", "staleness", "value", "author"]
COLOURINGS: Mapping[Colouring, str] = {
    "reward": "reward (mean of the leaves below)",
    "entropy": "entropy (nats, full softmax)",
    "mismatch": "mismatch (log q − log p)",
    "advantage": "advantage ((gain + loss) / weight)",
    "staleness": "staleness (weight versions behind the newest)",
    "value": "value (what a search or a judge held it to be worth)",
    "author": "author (who wrote it)",
}
AUTHORS: Mapping[str, str] = {
    "policy": "#9dc3e6", "env": "#8fd0b0", "hint": "#dba6db", "splice": "#e8cf7a", "prompt": "#d3d0c8",
    "template": "#b9bec6", "another actor": "#f0a58a",
}  # fmt: skip
INKS = ("#000000", "#ffffff")
STEPS = 33
_ANCHORS: Mapping[str, tuple[str, ...]] = {
    "worth": ("#c2512f", "#e8ad86", "#f1ebdd", "#93c6b3", "#1f7a5c"),
    "heat": ("#f6f1e6", "#f3cd90", "#e08a45", "#b03a4e", "#5a2458"),
    "sides": ("#b3482b", "#e9ab90", "#f3efe6", "#93bcda", "#245f9c"),
}
_PALETTE: Mapping[Colouring, str] = {
    "reward": "worth", "value": "worth", "entropy": "heat", "staleness": "heat", "mismatch": "sides",
    "advantage": "sides",
}  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """Where the ends of a palette stand."""

    colouring: Colouring
    low: float
    high: float
    palette: tuple[str, ...]
    names: tuple[str, ...] = ()
    """What each colour of a palette of categories means."""

    def index(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Index into the palette per value; -1 where there is none."""
        known = np.isfinite(values)
        if self.names:
            return np.where(known, np.where(known, values, 0), -1).astype(np.int64)
        span = (self.high - self.low) or 1.0
        at = (np.where(known, values, self.low) - self.low) / span * (len(self.palette) - 1)
        return np.where(known, np.clip(np.rint(at), 0, len(self.palette) - 1), -1).astype(np.int64)

    @property
    def inks(self) -> tuple[str, ...]:
        """A text colour per colour of the palette, dark on light or light on dark."""
        return tuple(ink(colour) for colour in self.palette)


def scale(colouring: Colouring, values: Floats) -> Scale:
    """The scale for some values: rewards from 0 to 1 at least, signed quantities symmetric about 0."""
    if colouring == "author":
        return Scale(colouring, 0, len(AUTHORS) - 1, tuple(AUTHORS.values()), tuple(AUTHORS))
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    if colouring in ("mismatch", "advantage"):
        far = max(abs(low), abs(high)) or 1.0
        low, high = -far, far
    else:
        low, high = min(0.0, low), max(high, 0.0) or 1.0
        high = max(1.0, high) if colouring == "reward" else high
    return Scale(colouring, low, high, _ramp(_ANCHORS[_PALETTE[colouring]]))


def colouring_of(name: str | None) -> Colouring:
    """The colouring an address names; reward when it names none or one that does not exist."""
    known: Mapping[str, Colouring] = {c: c for c in COLOURINGS}
    return known.get(name or "", "reward")


def author(role: str, actor: str) -> int:
    """Index of who wrote something among the authors."""
    names = list(AUTHORS)
    if role == "policy" and actor != "policy":
        return names.index("another actor")
    return names.index(role) if role in AUTHORS else names.index("template")


def ink(colour: str) -> str:
    """Dark or white, whichever has more contrast with a colour."""
    return max(INKS, key=lambda one: contrast(one, colour))


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, 1 to 21, as WCAG 2 defines it; text needs 4.5."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _ramp(anchors: tuple[str, ...]) -> tuple[str, ...]:
    points = np.array([[int(a[i : i + 2], 16) for i in (1, 3, 5)] for a in anchors], np.float64)
    at = np.linspace(0, len(anchors) - 1, STEPS)
    mixed = np.stack([np.interp(at, np.arange(len(anchors)), points[:, c]) for c in range(3)], axis=1)
    return tuple("#" + "".join(f"{round(v):02x}" for v in row) for row in mixed)
