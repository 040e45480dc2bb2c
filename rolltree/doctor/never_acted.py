"""A mechanism that never acted: a run that trained with a recipe's baseline under the recipe's name."""

from __future__ import annotations

from collections.abc import Iterator

from rolltree.doctor.detector import detector
from rolltree.doctor.finding import Symptom, option, work
from rolltree.doctor.run import CheckedRun
from rolltree.doctor.series import NotChecked
from rolltree.recipe.acted import acted_in


@detector(
    "never_acted",
    "The counter on the recipe's card stayed at rest in every step: what was trained is the recipe's baseline.",
    reads=("counter",),
    fixes=(
        option("items", "prompts come back, for methods that learn about prompts"),
        option("staleness", "rollouts of older policies, for corrections"),
        option("minibatches", "more updates a step, for what bounds ratios"),
        option("level", "other prompts, where all groups are right or all are wrong"),
        work("leave the recipe out and train its baseline"),
    ),
    knobs={"least": "steps from which on it is said"},
)  # fmt: skip
def never_acted(run: CheckedRun, *, least: int = 10) -> Iterator[Symptom]:
    """The line that the run itself ends with (`rolltree.recipe.acted`). Many mechanisms act in few steps, and some only
    once they have seen enough, so a short run is not judged."""
    found = acted_in(run.settings, run.lines)
    if found is None:
        raise NotChecked("config.json names no counter, or no step was finished")
    if not found.acted and found.looked >= least:
        first = min(int(line["step"]) for line in run.lines if line["kind"] == "train")
        yield Symptom(first, "warning", str(found), {"steps": float(found.looked), "least": float(least)})
