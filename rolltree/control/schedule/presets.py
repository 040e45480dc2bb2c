"""Published ways to schedule, as one choice in each of five places."""

from __future__ import annotations

from dataclasses import dataclass, field

from rolltree.control.order import ControlError
from rolltree.control.schedule.rules import (
    Admission,
    Ahead,
    Bounded,
    OverSample,
    Resume,
    ScheduleCorrection,
    StalenessBound,
    Stop,
    TopUp,
)
from rolltree.errors import unknown


@dataclass(frozen=True, slots=True)
class Schedule:
    """When rollouts start, when a batch is complete, how stopped ones go on, how old they may be, what is corrected."""

    admission: Admission = field(default_factory=Ahead)
    stop: Stop = field(default_factory=Stop)
    resume: Resume = field(default_factory=Resume)
    age: StalenessBound = field(default_factory=StalenessBound)
    correction: ScheduleCorrection = field(default_factory=ScheduleCorrection)

    @property
    def lockstep(self) -> bool:
        """Whether one plan after the other is grown to its end, with nothing under way beside training."""
        return self.stop.batch == "plan"

    def __post_init__(self) -> None:
        if self.lockstep:
            alone = Stop(batch="plan", spare=self.stop.spare)
            if not isinstance(self.admission, Ahead) or self.stop != alone or self.age != StalenessBound():
                raise ControlError(
                    "stop: batch='plan' trains whole plans in their order, so it goes with admission by Ahead(k) and "
                    "no other choice of order, window, abort or age; use batch='groups'"
                )
        if self.age.late != "wait" or self.age.most is None:
            return
        if self.stop.order != "created":
            raise ControlError(f"age: waiting for old groups needs stop.order='created', not {self.stop.order!r}")
        if not isinstance(self.admission, Ahead) or self.admission.staleness > self.age.most:
            raise ControlError(
                f"age: waiting for groups of age {self.age.most} needs admission by Ahead({self.age.most}) or less, "
                f"not {self.admission}: more could have to be waited for than fit into a batch; use late='drop'"
            )


PRESETS: dict[str, Schedule] = {
    "sync": Schedule(stop=Stop(batch="plan")),
    "areal": Schedule(
        Ahead(4),
        age=StalenessBound(4, late="wait"),
        correction=ScheduleCorrection("mask", high=5.0, decoupled=True),
    ),
    "april": Schedule(OverSample(2.0), Stop(abort=True)),
    "verl": Schedule(Bounded(0.5), Stop("finished"), correction=ScheduleCorrection("truncate", high=2.0)),
    "slime": Schedule(TopUp(1.0), Stop("finished"), correction=ScheduleCorrection("truncate", high=2.0)),
    "rollart": Schedule(
        Ahead(1),
        Stop(spare=1),
        Resume("turn"),
        StalenessBound(1),
        ScheduleCorrection("truncate", high=2.0),
    ),
    "dart": Schedule(
        TopUp(1.0),
        Stop(),
        Resume(update="run on"),
        StalenessBound(1, early=False),
        ScheduleCorrection("truncate", high=1.0),
    ),
}
"""Schedules by the system they are of. Differences from the released code are in `docs/scheduling.md`."""


def preset(name: str) -> Schedule:
    """A schedule by name; an unknown one is refused with the nearest known one."""
    if name not in PRESETS:
        raise unknown("schedule", name, PRESETS)
    return PRESETS[name]
