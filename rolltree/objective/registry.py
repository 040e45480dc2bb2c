"""Objectives by name.

`load_objective("clipped", clip_high=0.28, kl=0.01)` builds the named surrogate from its own knobs and wraps the shared
ones (penalties, corrections) around it. With the shared ones at their neutral values it returns the bare surrogate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from typing import Any, TypeVar

from rolltree.errors import did_you_mean
from rolltree.knobs import checked_knobs
from rolltree.objective.balanced import Bapo
from rolltree.objective.batch import Objective, ObjectiveError
from rolltree.objective.bypass import Bypass
from rolltree.objective.clipped import Clipped, context_corrected
from rolltree.objective.compose import Composed
from rolltree.objective.correction import Correction, ImportanceWeight, SecondMoment
from rolltree.objective.covariance import ClipCov, KlCov
from rolltree.objective.decoupled import Decoupled
from rolltree.objective.entropy import Aepo, Hapo
from rolltree.objective.gradient import Cispo, Gpg, Reinforce
from rolltree.objective.hint import HintMask
from rolltree.objective.imitate import OneToken
from rolltree.objective.mixed import Remix
from rolltree.objective.pairwise import PairwiseLoss
from rolltree.objective.penalty import Anchor, EntropyBonus, Estimator, KlPenalty, Penalty
from rolltree.objective.prefix import MinPro
from rolltree.objective.sequence import Gmpo, Gspo
from rolltree.objective.soft import Sapo
from rolltree.objective.vcpo import Vcpo

_T = TypeVar("_T")

OBJECTIVES: dict[str, Callable[..., Objective]] = {
    "clipped": Clipped,
    "reinforce": Reinforce,
    "gspo": Gspo,
    "cispo": Cispo,
    "sapo": Sapo,
    "gpg": Gpg,
    "clip_cov": ClipCov,
    "kl_cov": KlCov,
    "gmpo": Gmpo,
    "bapo": Bapo,
    "aepo": Aepo,
    "hapo": Hapo,
    "minpro": MinPro,
    "vcpo": Vcpo,
    "remix": Remix,
    "decoupled": Decoupled,
    "context_corrected": context_corrected,
    "one_token": OneToken,
    "pairwise": PairwiseLoss,
}
"""Every surrogate under its name."""

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


def load_objective(
    name: str,
    *,
    kl: float = 0.0,
    kl_estimator: Estimator = "k3",
    kl_anchor: Anchor = "reference",
    kl_weighted: bool = False,
    entropy_bonus: float = 0.0,
    correction: str | Correction | Sequence[Correction] = (),
    penalties: Sequence[Penalty] = (),
    **knobs: Any,
) -> Objective:
    """The named objective with its knobs, inside the penalties and corrections asked for."""
    shared = {"kl": kl, "kl_estimator": kl_estimator, "kl_anchor": kl_anchor, "kl_weighted": kl_weighted}
    checked_knobs(f"objective {name!r}: ", load_objective, {**shared, "entropy_bonus": entropy_bonus})
    surrogate = _build(name, knobs)
    costs = list(penalties)
    if kl:
        costs.append(KlPenalty(kl, kl_estimator, kl_anchor, kl_weighted))
    if entropy_bonus:
        costs.append(EntropyBonus(entropy_bonus))
    corrections = _corrections(correction)
    return Composed(surrogate, tuple(costs), corrections) if costs or corrections else surrogate


def knobs_of(name: str) -> tuple[str, ...]:
    """The knobs of a named surrogate."""
    return tuple(knob for knob in signature(_find("objective", name, OBJECTIVES)).parameters if knob != "level")


def _build(name: str, knobs: dict[str, Any]) -> Objective:
    made = _find("objective", name, OBJECTIVES)
    known = knobs_of(name)
    for knob in knobs:
        if knob not in known:
            raise ObjectiveError(f"objective {name!r} has no knob {knob!r}; {_way_out(knob, known)}")
    return made(**checked_knobs(f"objective {name!r}: ", made, knobs))


def _corrections(given: str | Correction | Sequence[Correction]) -> tuple[Correction, ...]:
    if isinstance(given, str):
        return (_find("correction", given, CORRECTIONS),)
    return tuple(given) if isinstance(given, Sequence) else (given,)


def _find(kind: str, name: str, among: dict[str, _T]) -> _T:
    if name not in among:
        raise ObjectiveError(f"no {kind} {name!r}; {_way_out(name, among)}")
    return among[name]


def _way_out(word: str, among: Iterable[str]) -> str:
    return did_you_mean(word, among) or f"there are: {', '.join(sorted(among)) or 'none'}"
