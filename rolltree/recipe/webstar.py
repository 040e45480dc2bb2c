"""WebSTAR's step-level filtering (arXiv 2512.10962)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.generate.methods.graded_steps import GradedSteps
from rolltree.generate.search.values import judge_of
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.recipe.searching import search_parts


@dataclass(frozen=True, slots=True)
class WebStar:
    """Every step of every rollout is graded by itself, and good steps are kept wherever they stand.

    `rolltree solve webstar --items-from train --out runs/steps` grades them, and `rolltree labels runs/steps --kind sft
    --threshold 0.5` writes the kept ones with their thoughts, each after the whole history as it was: bad steps leave
    the loss and not the context. `--kind head` distils the grades into a small model that `--worth head:FILE` uses
    again (the paper's StepRM). Pages and screenshots are left out, and so is the rubric of eight questions: the grade
    is a judge's in [0, 1], above 0.5 as the paper's above 5 of 10 (reconstructed).
    """

    card: ClassVar[Card] = Card(
        "webstar", "Step-level filtering with hindsight", "2512.10962", 2025,
        "over 15 % above UI-TARS-1.5-7B on WebVoyager by fine-tuning alone (7B)", ("generate", "filter", "credit"),
        "step_labels",
        Evidence("goals reached", "as many steps of successful rollouts", check="studies.search.hindsight:filtered",
                 seeds=5),
        counter=Counter("rollout/group_size"),
    )  # fmt: skip
    rollouts: int = 8
    """Rollouts of an item, failed ones included."""
    worth: str = "step"
    """Who grades a step: path, step or least (confidence over it), verifier, or head:FILE (rolltree labels)."""
    delimiter: str = ","
    """What ends a step within a turn; "" = the turn's end alone."""
    threshold: float = 0.5
    """Steps graded above it are kept and thought about."""
    hindsight: str = ""
    """Asks for the thought that leads to {step} after {before}, for {prompt}; "" = none is written."""

    def build(self) -> Parts:
        """Rollouts with graded steps."""
        check_group("webstar", self.rollouts, least=1)
        return search_parts("webstar", GradedSteps(
            self.rollouts, judge_of(self.worth), self.delimiter, self.threshold, self.hindsight,
        ))  # fmt: skip
