"""Number formats that weights may be rounded to, by name (`rolltree.policy.precision` does it)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from rolltree.errors import ModelError, unknown

Precision = Literal["full", "bf16", "int8", "int4", "fp8", "fp8-block"]
"""full: as they are. int8 and fp8 (e4m3) have a scale for each output channel, fp8-block for each 128 × 128, int4 for
each 16 neighbours."""
Shared = Literal["channel", "tile", "run"]
"""Which weights share a scale: an output channel, a tile of 128 × 128, or a run of 16 in the order they lie in."""


@dataclass(frozen=True, slots=True)
class Format:
    """A grid of numbers, and which weights share a scale on it. The scale is their largest magnitude."""

    kind: Literal["bf16", "int", "fp8"]
    bits: int
    shared: Shared | None = None
    """None = there is no scale."""

    @property
    def most(self) -> float:
        """The largest number of the grid, of a signed integer or of e4m3."""
        return 448.0 if self.kind == "fp8" else float(2 ** (self.bits - 1) - 1)


def integers(bits: int) -> Format:
    """Signed integers of so many bits with a scale for each run of 16, for a copy that explores (Sol-RL has FP4 with
    scales of 16)."""
    if not 2 <= bits <= 16:
        raise ModelError(f"bits={bits} makes no sense; give 2 to 16")
    return Format("int", bits, "run")


FORMATS: Mapping[Precision, Format | None] = {
    "full": None,
    "bf16": Format("bf16", 16),
    "int8": Format("int", 8, "channel"),
    "int4": integers(4),
    "fp8": Format("fp8", 8, "channel"),
    "fp8-block": Format("fp8", 8, "tile"),
}
"""What the names stand for."""


def check_precision(precision: str) -> None:
    """Refuse an unknown name."""
    if precision not in get_args(Precision):
        raise unknown("precision", precision, get_args(Precision))
