"""Names of number formats that weights may be rounded to (`rolltree.policy.precision` does it)."""

from __future__ import annotations

from typing import Literal, get_args

from rolltree.errors import unknown

Precision = Literal["full", "bf16", "int8", "fp8", "fp8-block"]
"""full: as they are. int8 and fp8 (e4m3) have a scale for each output channel, fp8-block for each 128 × 128."""


def check_precision(precision: str) -> None:
    """Refuse an unknown name."""
    if precision not in get_args(Precision):
        raise unknown("precision", precision, get_args(Precision))
