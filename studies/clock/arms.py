"""What is compared: every preset, and each of its choices taken differently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rolltree.control.schedule import PRESETS, Ahead, OverSample, Resume, Schedule, StalenessBound, Stop
from studies.clock.hardware import Hardware


@dataclass(frozen=True, slots=True)
class ScheduleArm:
    """A schedule and where its trainer sits."""

    schedule: Schedule
    colocated: bool = False
    about: str = ""

    def hardware(self, engines: int) -> Hardware:
        """So many engines with this arm's trainer."""
        return Hardware(engines, colocated=self.colocated)


AREAL = PRESETS["areal"]

ARMS: Mapping[str, ScheduleArm] = {
    "sync": ScheduleArm(PRESETS["sync"], True, "gather-all: every rollout of a batch, then the update"),
    "one step ahead": ScheduleArm(
        Schedule(Ahead(1), resume=Resume(update="wait"), age=StalenessBound(1, "wait")),
        False,
        "one batch overlaps with the update; an update waits for what runs",
    ),
    "april": ScheduleArm(PRESETS["april"], True, "two batches started, the first one trained, the rest carried over"),
    "april, 1.5 batches": ScheduleArm(replace(PRESETS["april"], admission=OverSample(1.5)), True, "less over-sampling"),
    "april, discarding": ScheduleArm(
        replace(PRESETS["april"], resume=Resume("drop")), True, "the same, but what was stopped is thrown away"
    ),
    "areal": ScheduleArm(
        AREAL, False, "at most 4 versions ahead, interrupted at updates, partials kept, gate enforced"
    ),
    "areal, counting only": ScheduleArm(
        replace(AREAL, age=StalenessBound()),
        False,
        "the bound at submission alone, as released; slow groups may be overtaken",
    ),
    "areal, restarting": ScheduleArm(
        replace(AREAL, resume=Resume("restart")), False, "interrupted rollouts begin again"
    ),
    "areal, waiting": ScheduleArm(
        replace(AREAL, resume=Resume(update="wait")), False, "updates wait for all that runs"
    ),
    "windowed FIFO": ScheduleArm(
        Schedule(Ahead(4), Stop(window=1.3)), False, "4 ahead, but nothing beyond 1.3 batches after the oldest is taken"
    ),
    "verl": ScheduleArm(PRESETS["verl"], False, "1.5 batches waiting or started per update, partials kept"),
    "slime": ScheduleArm(PRESETS["slime"], False, "one batch always under way, taken as it finishes, partials kept"),
    "rollart": ScheduleArm(
        PRESETS["rollart"], False, "1 ahead, older groups dropped, one spare rollout, turns made again"
    ),
    "dart": ScheduleArm(PRESETS["dart"], False, "one batch under way, engines reload in waves, two newest versions"),
}
"""Arms by name; presets under their own."""

LARGE = ("sync", "one step ahead", "april", "areal", "windowed FIFO", "verl", "slime", "dart")
"""The arms that are also run on 64 engines."""

LARGEST = ("sync", "april", "areal")
"""The arms that are also run on a thousand."""

AGENTS: Mapping[str, ScheduleArm] = {
    **{name: ARMS[name] for name in ("sync", "one step ahead", "areal")},
    **{
        f"rollart, {spare} spare": ScheduleArm(
            replace(PRESETS["rollart"], stop=Stop(spare=spare)), False, f"8 + {spare} rollouts per prompt"
        )
        for spare in (0, 1, 2, 4)
    },
    "rollart, waiting": ScheduleArm(
        replace(PRESETS["rollart"], stop=Stop(), age=StalenessBound(1, "wait")), False, "waits for old groups instead"
    ),
    "rollart, keeping": ScheduleArm(
        replace(PRESETS["rollart"], stop=Stop(), age=StalenessBound(1, "wait"), resume=Resume("keep")), False,
        "waits, and unfinished turns go on",
    ),
    "dart": ARMS["dart"],
}  # fmt: skip
"""What is run with environments."""
