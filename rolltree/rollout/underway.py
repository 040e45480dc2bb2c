"""What a schedule does to rollouts, in numbers: what became of them, partial ones, and if slow prompts get in."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rolltree.control.schedule import Group, Scheduler

WINDOW = 8
"""Batches of settled groups that the shares of slow and other prompts look back on."""
SLOW = 0.75
"""Groups whose longest rollout is at this quantile or beyond are slow ones."""


@dataclass(slots=True)
class Underway:
    """Remembers the groups that were settled last."""

    batch: int
    recent: deque[tuple[int, bool]] = field(init=False)
    """Length of the longest rollout, and whether the group was trained."""

    def __post_init__(self) -> None:
        self.recent = deque(maxlen=WINDOW * self.batch)

    def settled(self, group: Group) -> None:
        """A group is trained or dropped."""
        self.recent.append((_longest(group), group.usage == "trained"))

    def numbers(self, scheduler: Scheduler, trained: Sequence[Group]) -> dict[str, float]:
        """Of the batch that was trained last and of all that is under way."""
        waiting = [*scheduler.unfinished.values(), *scheduler.ready.values()]
        rollouts = [r for g in trained for r in g.kept]
        partial = [r for g in scheduler.unfinished.values() for r in g.members if not (r.done or r.usage) and r.tokens]
        behind = [scheduler.version + 1 - r.group.born for r in partial]
        out = {
            "rollout/resumed": sum(r.stops > 0 for r in rollouts) / max(len(rollouts), 1),
            "rollout/partial": float(len(partial)),
            "rollout/partial_tokens": float(sum(r.tokens for r in partial)),
            "staleness/partial_mean": float(np.mean(behind)) if behind else 0.0,
            "staleness/partial_max": float(max(behind, default=0)),
            "rollout/ready_groups": float(len(scheduler.ready)),
            "rollout/under_way": float(sum(not r.usage for g in waiting for r in g.members)),
        }  # fmt: skip
        out |= {f"rollout/scheduled/{usage}": float(n) for usage, n in sorted(scheduler.numbers.items())}
        out |= {f"budget/scheduled_tokens/{usage}": float(n) for usage, n in sorted(scheduler.tokens.items())}
        return out | self._slow([g for g in waiting if g.born < scheduler.version])

    def _slow(self, waiting: Sequence[Group]) -> dict[str, float]:
        """Shares trained of slow and other groups, among the last settled ones.

        What an update has overtaken counts as slow and untrained once it is as long as slow groups are; before that
        nobody knows.
        """
        if not self.recent:
            return {}
        longest = np.array([length for length, _ in self.recent])
        least = np.quantile(longest, SLOW)
        late = sum(_longest(g) >= least for g in waiting)
        slow = np.concatenate([longest >= least, np.ones(late, np.bool_)])
        there = np.array([*(trained for _, trained in self.recent), *[False] * late])
        out: dict[str, float] = {}
        for name, mine in (("slow", slow), ("other", ~slow)):
            if mine.any():
                out[f"rollout/{name}_trained"] = float(there[mine].mean())
        return out


def _longest(group: Group) -> int:
    return max((r.tokens for r in group.members), default=0)
