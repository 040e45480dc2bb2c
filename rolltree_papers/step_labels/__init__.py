"""Step labels by continuation: Math-Shepherd (arXiv 2312.08935), OmegaPRM's bisection (arXiv 2406.06592)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.generate.step_labels import StepLabels as Labels
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError
from rolltree.recipe.searching import search_parts


@dataclass(frozen=True, slots=True)
class StepLabelsRecipe:
    """Plays rollouts, plays on from each of their step ends, and notes how often that ended right.

    `rolltree solve step_labels --items-from train --out runs/labels` grows them, and `rolltree labels` makes rows of
    them for TRL's trainers, or a step head that searches use. The paper trains a large process reward model on such
    labels; the head here is linear. By bisection only the steps on the way to the first error are valued.
    """

    card: ClassVar[Card] = Card(
        "step_labels", "Step labels by Monte Carlo continuation", "2312.08935", 2023,
        "77.9 to 84.1 % on GSM8K, 28.6 to 33.0 % on MATH by rewards of steps without human labels (Mistral-7B)",
        ("generate", "filter"), "best_of_n",
        Evidence("AUC of a head", "confidence in the same steps",
                 check="rolltree_papers.step_labels.study:head", seeds=6),
        counter=Counter("rollout/births/resample"),
    )  # fmt: skip
    rollouts: int = 4
    """Rollouts that are labelled."""
    samples: int = 8
    """Continuations from a step's end."""
    delimiter: str = ","
    """What ends a step."""
    search: Literal["each", "binary"] = "each"
    """Value every step, or look for the first error by bisection."""

    def build(self) -> Parts:
        """Rollouts and continuations."""
        if self.search not in ("each", "binary"):
            raise RecipeError(f"step_labels: search={self.search!r} is neither 'each' nor 'binary'")
        if not self.delimiter:
            raise RecipeError("step_labels: delimiter='' ends no step; give what stands between two steps")
        return search_parts("step_labels", Labels(self.rollouts, self.samples, self.delimiter, self.search))
