"""A schedule for a recipe: which one, and as what the recipe's rollouts can follow it."""

from __future__ import annotations

from dataclasses import replace

from rolltree.control.schedule import Ahead, Schedule, preset
from rolltree.recipe.recipe import Parts
from rolltree.rollout.config import RolloutError
from rolltree.rollout.units import Unit, unit_of


def schedule_of(parts: Parts, name: str = "", staleness: int = 0) -> Schedule:
    """The run's schedule: the one that is named, else the recipe's own, else lock-step (`sync`).

    In lock-step whole plans may run ahead of the weights by `staleness` versions.
    """
    schedule = preset(name or "sync") if name or parts.schedule is None else parts.schedule
    if not staleness:
        return schedule
    if not schedule.lockstep:
        raise RolloutError(
            f"staleness={staleness} and a schedule both say how far rollouts run ahead; leave one of them out"
        )
    return replace(schedule, admission=Ahead(staleness))


def fitted(schedule: Schedule, parts: Parts) -> tuple[Schedule, Unit, str]:
    """The schedule as this recipe can follow it, what a rollout is to it, and what to say."""
    if reason := _unfit(schedule, parts):
        raise RolloutError(f"{reason}; leave the schedule out, or choose another recipe")
    unit = unit_of(parts.strategy, parts.control)
    if unit.cuttable or schedule.lockstep:
        return schedule, unit, ""
    resume = schedule.resume
    if resume.tokens == "drop":
        raise RolloutError(
            f"{parts.name} grows trees that cannot be cut, and the schedule drops what it stops; choose another one"
        )
    if resume.update == "interrupt":
        resume = replace(resume, tokens="keep", update="run on")
    stop = replace(schedule.stop, abort=False, spare=0)
    said = f"trees of {parts.name} cannot be cut: what the schedule would stop finishes first, across updates"
    return replace(schedule, stop=stop, resume=resume), unit, said


def _unfit(schedule: Schedule, parts: Parts) -> str:
    """Why a recipe cannot be scheduled; "" = it can."""
    if parts.recall is not None and schedule.age.late == "wait":
        return (
            f"{parts.name} recalls trees of earlier steps, so steps need more or fewer new ones, and a schedule that "
            "waits until nothing can get too old counts on as many in each"
        )
    if parts.peers and not schedule.lockstep:
        return f"{parts.name} trains several policies ({', '.join(parts.peers)}), whose weights change together"
    return ""
