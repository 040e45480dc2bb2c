"""Common corrections by name."""

from __future__ import annotations

from collections.abc import Sequence

from rolltree.errors import unknown
from rolltree.objective.bypass import Bypass
from rolltree.objective.correction import Correction, ImportanceWeight, SecondMoment
from rolltree.objective.hint import HintMask

CORRECTIONS: dict[str, Correction] = {
    "tis": ImportanceWeight("token", "truncate", high=2.0),
    "mis": ImportanceWeight("token", "mask", low=0.5, high=5.0),
    "sequence_tis": ImportanceWeight("sequence", "truncate", high=2.0),
    "sequence_mis": ImportanceWeight("sequence", "mask", high=2.0),
    "m2po": SecondMoment(0.04),
    "bypass": Bypass(),
    "hint_mask": HintMask(),
    "geometric_mis": ImportanceWeight("geometric", "mask", low=0.99, high=1.01),
}
"""Common corrections under their names; any `Correction` object may be given instead."""


def corrections(given: str | Correction | Sequence[str | Correction]) -> tuple[Correction, ...]:
    """Corrections given as themselves or by their names."""
    several = given if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
    return tuple(_named(one) if isinstance(one, str) else one for one in several)


def _named(name: str) -> Correction:
    if name not in CORRECTIONS:
        raise unknown("correction", name, CORRECTIONS)
    return CORRECTIONS[name]
