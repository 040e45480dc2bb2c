"""The claim on a recipe's card as an experiment: what is measured, on which seeds, with which code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from rolltree.compare.arms import Arm, arms
from rolltree.compare.definitions import ROOT
from rolltree.compare.regimes import PREFIX, is_calibrated, knobs_of, regime
from rolltree.compare.runner import Conditions
from rolltree.compare.sources import check_sources, combined, recipe_sources
from rolltree.compare.trace import LabError
from rolltree.recipe.compose import compose
from rolltree.recipe.recipe import Card, Evidence
from rolltree.recipe.registry import load_recipe, recipes
from rolltree.registry import in_file
from studies.lab.systems import SYSTEMS

END = 1024
"""Samples of the first and the last evaluation of a run of evidence: 256 items with 4 each, or 128 with 8."""
Kind = Literal["exact", "simulated", "training"]


@dataclass(frozen=True)
class Measured:
    """What a check found with one seed: the method's number, what it is held against, and curves worth showing."""

    value: float
    baseline: float
    curves: dict[str, tuple[list[float], list[float]]] = field(
        default_factory=dict[str, tuple[list[float], list[float]]]
    )
    acted: Mapping[str, float] = field(default_factory=dict[str, float])
    """How often the mechanism acted, by what was counted (the card's counter where there are trees): an entry in which
    it never did is void."""


Check = Callable[[int], Measured]
"""An exact or simulated experiment: a seed in, both numbers out. Same seed, same numbers."""


@dataclass(frozen=True)
class Claim:
    """A card with the experiment it names."""

    card: Card
    question: Evidence
    address: str = ""
    """How the recipe is found where its name is in no registry: file.py:name."""

    @property
    def name(self) -> str:
        """The recipe's name."""
        return self.card.name

    @property
    def recipe(self) -> str:
        """What the registry finds it by."""
        return self.address or self.name

    @property
    def kind(self) -> Kind:
        """A check with one seed is exact, with several simulated."""
        if self.question.check:
            return "exact" if self.question.seeds == 1 else "simulated"
        if self.question.seeds < 2:
            raise LabError(
                f"the claim of {self.name!r} is about training and needs two seeds or more; three or five are usual"
            )
        return "training"

    @property
    def regime(self) -> str:
        """The regime that the claim is asked in; "" where the card says task and budget itself."""
        task = self.question.task
        return task.removeprefix(PREFIX) if task.startswith(PREFIX) else ""

    @property
    def complete(self) -> bool:
        """Whether the claim can be run: a check, a regime, or a task and a budget."""
        q = self.question
        return bool(q.check or self.regime) or (bool(q.task) and q.budget > 0)

    @property
    def missing(self) -> str:
        """What an incomplete claim lacks."""
        return (
            f"the claim of {self.name!r} names neither a check nor a regime nor a task and a budget; complete its card"
        )

    @property
    def uncalibrated(self) -> bool:
        """Whether it asks in a regime whose rate nobody has calibrated yet, so that it cannot be measured."""
        return bool(self.regime) and not is_calibrated(self.regime)

    def sides(self) -> tuple[Arm, Arm]:
        """Baseline and recipe as arms of a comparison."""
        shared = knobs_of(self.regime) if self.regime else ()
        pair = arms((self.question.baseline, self.recipe), (*shared, *self.question.settings))
        return pair[0], pair[1]

    def conditions(self) -> Conditions:
        """What both sides share."""
        q = self.question
        if not self.complete:
            raise LabError(self.missing)
        if self.regime:
            return regime(self.regime).conditions()
        samples = 8 if q.metric.startswith("pass@") and not q.metric.startswith("pass@1") else 4
        return Conditions(q.task, float(q.budget), q.level, eval_samples=samples, end_items=END // samples)

    def check(self) -> Check:
        """The function that a card's `check` names."""
        module, colon, function = self.question.check.partition(":")
        if module.startswith(("studies.", "rolltree_papers.")) and (folder := str(checkout())) not in sys.path:
            sys.path.insert(0, folder)
        try:
            found = getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError, ValueError) as error:
            raise LabError(
                f"the card of {self.name!r} names the check {self.question.check!r}, which cannot be found: {error}; "
                "write it as module:function"
            ) from error
        if not colon or not callable(found):
            raise LabError(f"the check {self.question.check!r} of {self.name!r} is no function; write module:function")
        return cast(Check, found)

    def sources(self) -> dict[str, str]:
        """Hashes of what the claim rests on: both recipes' own modules, the regime, and the check with what it uses."""
        out = dict[str, str]() if self.name in SYSTEMS else _recipe_hashes(self.recipe)
        if self.regime:
            asked = {name: repr(value) for name, value in self.conditions().told().items()}
            knobs = repr(knobs_of(self.regime)) if is_calibrated(self.regime) else "not calibrated"
            out[self.question.task] = combined(asked | {"knobs": knobs})
        if not self.question.check:
            return out | _recipe_hashes(self.question.baseline)
        module, _, function = self.question.check.partition(":")
        return out | check_sources(module, function)


def checkout() -> Path:
    """The folder of the source this package is run from; what is installed from a wheel has none."""
    if not (ROOT.parent / "studies").is_dir():
        raise LabError(
            "evidence is made in a checkout of Rolltree's source, and this package is installed without one; clone the "
            "source and run it there"
        )
    return ROOT.parent


def claim_of(name: str) -> Claim:
    """The claim of a recipe or a system; one that claims nothing is refused with a sentence."""
    card = SYSTEMS[name].card if name in SYSTEMS else load_recipe(name).card
    if card.evidence is None:
        raise LabError(f"the card of {name!r} names no evidence; add an Evidence to it in its recipe file")
    return Claim(card, card.evidence, name if in_file(name) else "")


def claims() -> list[Claim]:
    """All claims made, by name."""
    cards = [*(r.card for r in recipes().values()), *(s.card for s in SYSTEMS.values())]
    return [Claim(card, card.evidence) for card in cards if card.evidence is not None]


def _recipe_hashes(name: str) -> dict[str, str]:
    recipe: Any = load_recipe(name)
    return recipe_sources(recipe, compose(recipe))
