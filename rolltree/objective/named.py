"""Corrections by name: built in, from an installed package, or from a file of your own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from rolltree.objective.correction import Correction, ImportanceWeight, SecondMoment
from rolltree.objective.forced import HintMask, ShapedForced
from rolltree.objective.off_policy_mask import OffPolicyMask
from rolltree.objective.ratio import Bypass
from rolltree.registry import Registry

_BUILT_IN: dict[str, Correction] = {
    "tis": ImportanceWeight("token", "truncate", high=2.0),
    "mis": ImportanceWeight("token", "mask", low=0.5, high=5.0),
    "sequence_tis": ImportanceWeight("sequence", "truncate", high=2.0),
    "sequence_mis": ImportanceWeight("sequence", "mask", high=2.0),
    "m2po": SecondMoment(0.04),
    "bypass": Bypass(),
    "off_policy_mask": OffPolicyMask(),
    "hint_mask": HintMask(),
    "shaped_forced": ShapedForced(),
    "geometric_mis": ImportanceWeight("geometric", "mask", low=0.99, high=1.01),
}


def _unnamed(_: Any) -> None:
    """No correction says its own name."""


def _own(_: str, value: Any) -> Correction | None:
    made = value() if isinstance(value, type) else value
    fits = callable(made) and hasattr(made, "level") and hasattr(made, "needs")
    return cast("Correction", made) if fits else None


CORRECTIONS = Registry["Correction"](
    "correction", "rolltree.corrections", lambda: _BUILT_IN, _unnamed, given=_own
)  # fmt: skip
"""Common corrections; from a file or another package any `Correction`, or a class that makes one without arguments."""


def corrections(given: str | Correction | Sequence[str | Correction]) -> tuple[Correction, ...]:
    """Corrections given as themselves or by their names."""
    several = given if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
    return tuple(CORRECTIONS.find(one) if isinstance(one, str) else one for one in several)
