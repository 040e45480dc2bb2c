"""Objectives by name.

`load_objective("clipped", clip_high=0.28, kl=0.01)` builds the named surrogate from its own knobs and wraps the shared
ones (penalties, corrections) around it. With the shared ones at their neutral values it returns the bare surrogate.
Importing this module costs no torch: objectives are imported when the first one is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rolltree.knobs.values import checked_knobs
from rolltree.registry import Modules, Registry, check_knobs

if TYPE_CHECKING:
    from rolltree.objective.batch import Objective
    from rolltree.objective.correction import Correction
    from rolltree.objective.penalty import Anchor, Estimator, Penalty

M = TypeVar("M", bound=Callable[..., Any])
_NAMES: dict[Callable[..., Any], str] = {}


def register(name: str) -> Callable[[M], M]:
    """Decorator of a class or a function: make the objective it builds loadable by name."""

    def add(make: M) -> M:
        _NAMES[make] = name
        return make

    return add


def _objective(value: Any) -> tuple[str, Callable[..., Objective]] | None:
    name = _NAMES.get(value) if callable(value) and type(value).__hash__ is not None else None
    return None if name is None else (name, cast("Callable[..., Objective]", value))


def _own(_: str, value: Any) -> Callable[..., Objective] | None:
    return cast("Callable[..., Objective]", value) if callable(value) else None


OBJECTIVES = Registry["Callable[..., Objective]"](
    "objective",
    "rolltree.objectives",
    Modules(_objective, "rolltree.objective", file="objective"),
    _objective,
    given=_own,
)
"""What makes every surrogate, by name; from a file or another package anything that makes one."""


def load_objective(
    name: str,
    *,
    kl: float = 0.0,
    kl_estimator: Estimator = "k3",
    kl_anchor: Anchor = "reference",
    kl_weighted: bool = False,
    entropy_bonus: float = 0.0,
    correction: str | Correction | Sequence[str | Correction] = (),
    penalties: Sequence[Penalty] = (),
    **knobs: Any,
) -> Objective:
    """The named objective with its knobs, inside the penalties and corrections asked for."""
    from rolltree.objective.compose import Composed
    from rolltree.objective.named import corrections
    from rolltree.objective.penalty import EntropyBonus, KlPenalty

    made = OBJECTIVES.find(name)
    check_knobs(f"objective {name!r}", knobs, knobs_of(name))
    shared = {"kl": kl, "kl_estimator": kl_estimator, "kl_anchor": kl_anchor, "kl_weighted": kl_weighted}
    checked_knobs(f"objective {name!r}: ", _shared, {**shared, "entropy_bonus": entropy_bonus})
    surrogate: Objective = made(**checked_knobs(f"objective {name!r}: ", made, knobs))
    costs = list(penalties)
    if kl:
        costs.append(KlPenalty(kl, kl_estimator, kl_anchor, kl_weighted))
    if entropy_bonus:
        costs.append(EntropyBonus(entropy_bonus))
    around = corrections(correction)
    return Composed(surrogate, tuple(costs), around) if costs or around else surrogate


def _shared(kl: float, kl_estimator: str, kl_anchor: str, kl_weighted: bool, entropy_bonus: float) -> None:
    """The kinds of the knobs that every objective has."""


def knobs_of(name: str) -> tuple[str, ...]:
    """The knobs of a named surrogate."""
    return tuple(knob for knob in signature(OBJECTIVES.find(name)).parameters if knob != "level")
