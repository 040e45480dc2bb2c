"""Detectors by name: each a pure function of a run and its own thresholds, with suggested fixes.

Those that hold one metric against a threshold are records in `rolltree.doctor.levels`; the others are functions.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from inspect import signature
from typing import Any, cast

import rolltree.doctor as package
from rolltree.doctor.finding import Finding, Fix, Symptom, offered
from rolltree.doctor.run import CheckedRun, DoctorError
from rolltree.doctor.series import NotChecked
from rolltree.errors import unknown

Look = Callable[..., Iterable[Symptom]]


@dataclass(frozen=True, slots=True)
class Detector:
    """One pathology: how it is told, and what to do."""

    name: str
    about: str
    """What is wrong when it fires, in one sentence."""
    reads: tuple[str, ...]
    """The numbers it reads; of these names the page of findings is made."""
    fixes: tuple[Fix, ...]
    knobs: Mapping[str, str]
    """Its thresholds and what each means."""
    look: Look
    thresholds: Mapping[str, float]
    """Their values unless overridden."""
    why: str = ""
    """What it rests on."""
    live: bool = True
    """Whether the log alone tells it, so that it is watched during training."""

    def findings(self, run: CheckedRun, **thresholds: Any) -> list[Finding] | NotChecked:
        """What it finds in a run, or why it cannot look."""
        try:
            seen = list(self.look(run, **thresholds))
        except NotChecked as lacking:
            return lacking
        out: list[Finding] = []
        for s in seen:
            fix = "; ".join(offered(s.fixes or self.fixes, run.settings))
            out.append(Finding(s.step, self.name, s.severity, s.message, dict(s.numbers), s.nodes, fix, s.until))
        return out


def detector(
    name: str, about: str, *, reads: tuple[str, ...], fixes: tuple[Fix, ...], knobs: Mapping[str, str],
    live: bool = True,
) -> Callable[[Look], Detector]:  # fmt: skip
    """Make a detector of a function whose keyword-only arguments are its thresholds."""

    def make(look: Look) -> Detector:
        given = {n: p.default for n, p in signature(look).parameters.items() if p.kind is p.KEYWORD_ONLY}
        return Detector(name, about, reads, fixes, knobs, look, given, " ".join((look.__doc__ or "").split()), live)

    return make


@cache
def detectors() -> dict[str, Detector]:
    """All detectors by name, in the order of their modules."""
    found: dict[str, Detector] = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(package.__path__)):
        for value in vars(importlib.import_module(f"{package.__name__}.{module}")).values():
            many = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
            found |= {one.name: one for one in many if isinstance(one, Detector)}
    return found


def thresholds(settings: Iterable[tuple[str, Any]]) -> dict[str, dict[str, Any]]:
    """Settings "detector.knob" → value by detector; an unknown name is refused with the nearest known."""
    out: dict[str, dict[str, Any]] = {}
    for name, value in settings:
        owner, _, knob = name.partition(".")
        if owner not in detectors():
            raise unknown("detector", owner, detectors(), "write detector.knob=value")
        known = detectors()[owner].thresholds
        if knob not in known:
            near = get_close_matches(knob, known, 1, cutoff=0.5)
            way = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
            raise DoctorError(f"the detector {owner!r} has no knob {knob!r}; {way}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DoctorError(f"{name}={value!r} is no threshold; give a number")
        if knob == "window" and (value != int(value) or value < 1):
            raise DoctorError(f"{name}={value} makes no sense; give a whole number of steps")
        out.setdefault(owner, {})[knob] = value
    return out
