"""When rollouts start, stop, go on, grow too old and are corrected: five small choices, and the scheduler they steer.

Nothing here reads a clock of its own, waits or computes: an executor does the work and reports back, in real time or in
simulated time (`studies.clock`).
"""

from rolltree.control.schedule.presets import PRESETS, Schedule, preset
from rolltree.control.schedule.rollout import Group, Offer, Rollout, Segment
from rolltree.control.schedule.rules import (
    Admission,
    Ahead,
    Bounded,
    Load,
    OverSample,
    Resume,
    ScheduleCorrection,
    StalenessBound,
    Stop,
    TopUp,
)
from rolltree.control.schedule.scheduler import Executor, Finish, Scheduler

__all__ = [
    "PRESETS",
    "Admission",
    "Ahead",
    "Bounded",
    "Executor",
    "Finish",
    "Group",
    "Load",
    "Offer",
    "OverSample",
    "Resume",
    "Rollout",
    "Schedule",
    "ScheduleCorrection",
    "Scheduler",
    "Segment",
    "StalenessBound",
    "Stop",
    "TopUp",
    "preset",
]
