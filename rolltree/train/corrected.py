"""What an objective does about tokens of older weights, as the run's schedule says."""

from __future__ import annotations

from dataclasses import replace

from rolltree.control.schedule import ScheduleCorrection
from rolltree.objective.batch import Objective
from rolltree.objective.clipped import Clipped
from rolltree.objective.compose import Composed
from rolltree.objective.correction import ImportanceWeight
from rolltree.objective.decoupled import Decoupled
from rolltree.objective.hooks import accumulator_of


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
