"""What is compared: every preset, and each of its choices taken differently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rolltree.control.schedule import PRESETS, Age, Ahead, OverSample, Resume, Schedule, Stop
from rolltree.lab.clock.hardware import Hardware


@dataclass(frozen=True, slots=True)
class Arm:
    """A schedule and where its trainer sits."""

    schedule: Schedule
    colocated: bool = False
    about: str = ""

    def hardware(self, engines: int) -> Hardware:
        """So many engines with this arm's trainer."""
        return Hardware(engines, colocated=self.colocated)


AREAL = PRESETS["areal"]

ARMS: Mapping[str, Arm] = {
    "sync": Arm(PRESETS["sync"], True, "gather-all: every rollout of a batch, then the update"),
    "one step ahead": Arm(
        Schedule(Ahead(1), resume=Resume(update="wait"), age=Age(1, "wait")), False,
        "one batch overlaps with the update; an update waits for what runs",
    ),
    "april": Arm(PRESETS["april"], True, "two batches started, the first one trained, the rest carried over"),
    "april, 1.5 batches": Arm(replace(PRESETS["april"], admission=OverSample(1.5)), True, "less over-sampling"),
    "april, discarding": Arm(
        replace(PRESETS["april"], resume=Resume("drop")), True, "the same, but what was stopped is thrown away"
    ),
    "areal": Arm(AREAL, False, "at most 4 versions ahead, interrupted at updates, partials kept, gate enforced"),
    "areal, counting only": Arm(
        replace(AREAL, age=Age()), False, "the bound at submission alone, as released; slow groups may be overtaken"
    ),
    "areal, restarting": Arm(replace(AREAL, resume=Resume("restart")), False, "interrupted rollouts begin again"),
    "areal, waiting": Arm(replace(AREAL, resume=Resume(update="wait")), False, "updates wait for all that runs"),
    "windowed FIFO": Arm(
        Schedule(Ahead(4), Stop(window=1.3)), False, "4 ahead, but nothing beyond 1.3 batches after the oldest is taken"
    ),
    "verl": Arm(PRESETS["verl"], False, "1.5 batches waiting or started per update, partials kept"),
    "slime": Arm(PRESETS["slime"], False, "one batch always under way, taken as it finishes, partials kept"),
    "rollart": Arm(PRESETS["rollart"], False, "1 ahead, older groups dropped, one spare rollout, turns made again"),
    "dart": Arm(PRESETS["dart"], False, "one batch under way, engines reload in waves, two newest versions"),
}  # fmt: skip
"""Arms by name; presets under their own."""

LARGE = ("sync", "one step ahead", "april", "areal", "windowed FIFO", "verl", "slime", "dart")
"""The arms that are also run on 64 engines."""

LARGEST = ("sync", "april", "areal")
"""The arms that are also run on a thousand."""

AGENTS: Mapping[str, Arm] = {
    **{name: ARMS[name] for name in ("sync", "one step ahead", "areal")},
    **{
        f"rollart, {spare} spare": Arm(
            replace(PRESETS["rollart"], stop=Stop(spare=spare)), False, f"8 + {spare} rollouts per prompt"
        )
        for spare in (0, 1, 2, 4)
    },
    "rollart, waiting": Arm(
        replace(PRESETS["rollart"], stop=Stop(), age=Age(1, "wait")), False, "waits for old groups instead"
    ),
    "rollart, keeping": Arm(
        replace(PRESETS["rollart"], stop=Stop(), age=Age(1, "wait"), resume=Resume("keep")), False,
        "waits, and unfinished turns go on",
    ),
    "dart": ARMS["dart"],
}  # fmt: skip
"""What is run with environments."""
