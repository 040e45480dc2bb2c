"""What a recipe needs of its run, declared on its card, checked before the first token.

A need that a run leaves open is set where something can be set, and the run's first lines say so; what no option sets
is told in one sentence with the way to meet it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.task.protocol import Task, measured

Kind = Literal["revisits", "staleness", "turns", "part", "tags", "judge"]


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that the mechanism cannot act without."""

    kind: Kind
    least: int = 0
    """For turns: how many at least."""
    name: str = ""
    """For staleness: the schedule that is set by default; for a part: its name."""

    revisits: ClassVar[Need]
    """Prompts that come back: `--items 256` where the run does not say."""
    staleness: ClassVar[Need]
    """Rollouts of an older policy than the one in training. Told, not set."""
    tags: ClassVar[Need]
    """A policy that opens its answers with the task's tags, which the embedded one was never taught. Told."""
    judge: ClassVar[Need]
    """A judge that is not the verifier. Told."""

    @staticmethod
    def turns(least: int) -> Need:
        """A task in which a rollout has so many turns at least. Told."""
        return Need("turns", least)

    @staticmethod
    def schedule(name: str) -> Need:
        """Rollouts of older policies, by this schedule where the run does not say (`rolltree.control.schedule`)."""
        return Need("staleness", name=name)

    @staticmethod
    def part(name: str) -> Need:
        """A task whose verdict measures this part. Told."""
        return Need("part", name=name)

    def __str__(self) -> str:
        return {
            "revisits": "prompts that come back (`--items` is set where the run does not say)",
            "staleness": f"rollouts of older policies (`--scheduler {self.name}` is set where the run does not say)"
            if self.name else "rollouts of older policies (`--scheduler areal` or `--staleness 4`)",
            "turns": f"dialogues of {self.least} turns or more",
            "part": f"a verdict that measures `{self.name}`",
            "tags": "a policy that was taught the task's tags",
            "judge": "a judge that is not the verifier",
        }[self.kind]  # fmt: skip


Need.revisits, Need.staleness, Need.tags, Need.judge = (Need(k) for k in ("revisits", "staleness", "tags", "judge"))

COMES_BACK = 256
"""Distinct items of a run whose recipe needs prompts that come back."""
VISITS = 4
"""Times that a prompt comes back at least, where a run is short."""


def pool(drawn: int) -> int:
    """How many distinct items make prompts come back among so many that are drawn."""
    return max(1, min(COMES_BACK, drawn // VISITS))


def lacking(name: str, needs: tuple[Need, ...], task: Task) -> list[str]:
    """A sentence for each need that the task leaves open, with the way to meet it."""
    out: list[str] = []
    parts = measured(task)
    for need in needs:
        if need.kind == "turns" and task.max_turns < need.least:
            turns = f"has {task.max_turns} of them" if task.max_turns else "has none"
            out.append(
                f"{name} needs dialogues of {need.least} turns or more, and the task {task.name!r} {turns}; give "
                "--task calculator, or another with turns (rolltree tasks)"
            )
        if need.kind == "part" and parts is not None and need.name not in parts:
            out.append(
                f"{name} reads the part {need.name!r} of a verdict, which the task {task.name!r} does not measure; "
                f"give the task on its page (rolltree recipes {name})"
            )
    return out
