"""A schedule for a recipe: which one, whether it fits, and what the objective does about old tokens."""

from __future__ import annotations

from dataclasses import replace

from rolltree.control.schedule import Schedule, ScheduleCorrection, preset
from rolltree.generate.strategy import TreeStrategy
from rolltree.objective.batch import Objective
from rolltree.objective.clipped import Clipped
from rolltree.objective.compose import Composed
from rolltree.objective.correction import ImportanceWeight
from rolltree.objective.decoupled import Decoupled
from rolltree.objective.hooks import accumulator_of
from rolltree.recipe.recipe import Parts
from rolltree.train.config import TrainConfig, TrainError
from rolltree.train.ways import Way, way_of


def schedule_of(parts: Parts, config: TrainConfig) -> Schedule | None:
    """The run's schedule: the one it names, else the recipe's own; None = batch after batch without one."""
    return preset(config.scheduler) if config.scheduler else parts.schedule


def fitted(schedule: Schedule, parts: Parts, config: TrainConfig) -> tuple[Schedule, Way, str]:
    """The schedule as this recipe can follow it, what a rollout is to it, and what to say.

    A recipe whose trees are grown together is refused: it needs all rollouts of a step at once.
    """
    strategy = parts.strategy
    reason = _unfit(schedule, parts, config)
    if reason or not isinstance(strategy, TreeStrategy):
        raise TrainError(f"{reason or _together(parts)}; leave the schedule out, or choose another recipe")
    way = way_of(strategy, parts.control)
    if way.cuttable:
        return schedule, way, ""
    resume = schedule.resume
    if resume.tokens == "drop":
        raise TrainError(
            f"{parts.name} grows trees that cannot be cut, and the schedule drops what it stops; choose another one"
        )
    if resume.update == "interrupt":
        resume = replace(resume, tokens="keep", update="run on")
    stop = replace(schedule.stop, abort=False, spare=0)
    said = f"trees of {parts.name} cannot be cut: what the schedule would stop finishes first, across updates"
    return replace(schedule, stop=stop, resume=resume), way, said


def corrected(objective: Objective, correction: ScheduleCorrection) -> Objective:
    """An objective that weighs old tokens as the schedule says; one that does so already stays as it is."""
    knobs = correction.knobs()
    if not knobs or "sampled" in objective.needs:
        return objective
    if correction.decoupled and isinstance(objective, Clipped):
        return Decoupled(objective.clip_low, objective.clip_high, objective.dual, **knobs)
    weight = ImportanceWeight(**knobs)
    if isinstance(objective, Composed):
        made = replace(objective, corrections=(*objective.corrections, weight))
    else:
        made = Composed(objective, (), (weight,))
    accumulator_of(made)  # refuses objectives that take their gradient path by path
    return made


def _unfit(schedule: Schedule, parts: Parts, config: TrainConfig) -> str:
    """Why a recipe cannot be scheduled; "" = it can."""
    if config.staleness:
        return f"staleness={config.staleness} and a schedule both say how far rollouts run ahead"
    if parts.recall is not None and schedule.age.late == "wait":
        return (
            f"{parts.name} recalls trees of earlier steps, so steps need more or fewer new ones, and a schedule that "
            "waits until nothing can get too old counts on as many in each"
        )
    if parts.peers:
        return f"{parts.name} trains several policies ({', '.join(parts.peers)}), whose weights change together"
    return ""


def _together(parts: Parts) -> str:
    return f"the strategy {type(parts.strategy).__name__} of {parts.name} grows all prompts of a step together"
