"""What a run is given: names become parts, and single knobs a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rolltree.errors import did_you_mean
from rolltree.recipe.compose import Course
from rolltree.recipe.recipe import Parts, Recipe
from rolltree.recipe.registry import load_recipe
from rolltree.task.protocol import Task
from rolltree.train.config import Optim, TrainConfig, TrainError, known_fields


def with_knobs(config: TrainConfig, knobs: Mapping[str, Any]) -> TrainConfig:
    """A configuration with single knobs replaced; an unknown one is refused with the nearest known."""
    run, optim = known_fields(TrainConfig), known_fields(Optim)
    for knob in knobs:
        if knob not in run and knob not in optim:
            way = did_you_mean(knob, [*run, *optim]) or f"there are {', '.join([*run, *optim])}"
            raise TrainError(f"training has no knob {knob!r}; {way}")
    mine = {k: v for k, v in knobs.items() if k in optim}
    rest = {k: v for k, v in knobs.items() if k in run}
    base = replace(config, **rest)
    return replace(base, optim=replace(base.optim, **mine)) if mine else base


def course_of(recipe: str | Recipe | Parts) -> Course:
    """The compositions of a run behind a name, a recipe or one composition for all steps."""
    return Course(load_recipe(recipe) if isinstance(recipe, str) else recipe)


def parts_of(recipe: str | Recipe | Parts) -> Parts:
    """The composition of the first step."""
    return course_of(recipe).at(0, {})


def task_of(task: str | Task) -> Task:
    """A task by name, or itself."""
    if not isinstance(task, str):
        return task
    from rolltree.task.registry import load_task

    return load_task(task)
