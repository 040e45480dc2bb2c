"""What a schedule does to rollouts, in numbers: what became of them, partial ones, and if slow prompts get in."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rolltree.control.history import BANDS
from rolltree.control.order import Delivery
from rolltree.control.probe import in_flight
from rolltree.control.schedule import Group, Scheduler
from rolltree.tree import Tree
from rolltree.visible import shortened

# Where a plan's budget went: tokens, prompts and rollouts by how hard the prompts are.


def allocation(delivered: Sequence[Delivery], bands: Mapping[str, str]) -> dict[str, float]:
    """Where a step's budget went: tokens, prompts and rollouts by difficulty band, tokens by level, rollouts by arm,
    groups without variance and those avoided.

    `bands` are those of the recent unassisted pass rate, by what was known before the step. A group without variance
    is avoided if its first delivery had none and all that was delivered for it has.
    """
    if not delivered:
        return {}
    out = {f"budget/{what}/{name}": 0.0 for what in ("tokens", "rollouts", "prompts") for name in BANDS}
    for uid in {d.order.prompt.uid for d in delivered}:
        out[f"budget/prompts/{bands[uid]}"] += 1
    uids = {d.order.prompt.uid for d in delivered}
    out["budget/revisited"] = 1.0 - out["budget/prompts/new"] / len(uids)
    out["budget/other_levels"] = float(len({d.order.prompt.item.level for d in delivered}) - 1)
    groups: dict[int, list[Delivery]] = {}
    for d in delivered:
        out[f"budget/tokens/{bands[d.order.prompt.uid]}"] += d.decoded
        out[f"budget/rollouts/{bands[d.order.prompt.uid]}"] += d.n
        level = f"budget/level/{d.order.prompt.item.level}"
        out[level] = out.get(level, 0.0) + d.decoded
        name = f"budget/arm/{d.order.arm if d.order.for_training else 'measured'}"
        out[name] = out.get(name, 0.0) + d.n
        if d.order.for_training:
            groups.setdefault(d.order.prompt.place, []).append(d)
    for name in sorted({name for d in delivered for name in d.numbers}):
        out[f"budget/control/{name}"] = float(np.mean([d.numbers[name] for d in delivered if name in d.numbers]))
    if any(d.order.probe is not None for d in delivered):
        out |= in_flight([p for d in delivered for p in d.probes])
    first_alike = avoided = wasted = 0
    for of_prompt in groups.values():
        rewards = [r for d in of_prompt for r in d.rewards]
        first, now = _zero_variance(of_prompt[0].rewards), _zero_variance(rewards)
        first_alike += first
        avoided += first and not now
        wasted += sum(d.decoded for d in of_prompt) if now else 0
    return out | {
        "budget/groups": float(len(groups)),
        "budget/zero_variance_first": float(first_alike),
        "budget/zero_variance_avoided": float(avoided),
        "budget/zero_variance_tokens": float(wasted),
    }  # fmt: skip


def _zero_variance(rewards: Sequence[float]) -> bool:
    return not rewards or max(rewards) - min(rewards) <= 1e-9


# What failed among rollouts, in words: said at once, and where nothing else is left the end of the run.

KIND = "failures"
"""Kind of the lines in metrics.jsonl: `failed` leaves of `leaves`, and `why`, all that the first of them said."""


def failures(trees: Iterable[Tree]) -> tuple[int, int, str]:
    """How many rollouts failed, of how many, and what the first of them said with the place in the code."""
    failed = leaves = 0
    first = ""
    for tree in trees:
        for leaf in tree.leaves():
            leaves += 1
            failed += leaf.status == "failed"
        for event in tree.events:
            if event.kind == "fail" and not first:
                place = event.numbers.get("place")
                first = event.why + (f" ({place})" if place else "")
    return failed, leaves, first


def told(failed: int, leaves: int, first: str) -> str:
    """One line about so many failures; empty where there are none."""
    return f"{failed} of {leaves} rollouts failed; the first: {first}" if failed else ""


def said_of(trees: Iterable[Tree]) -> str:
    """One line about the failures, as long as somebody reads; empty where there are none."""
    failed, leaves, first = failures(trees)
    return told(failed, leaves, shortened(first))


def all_failed(trees: Iterable[Tree]) -> str:
    """One line where there are rollouts and every one of them failed; else nothing."""
    failed, leaves, first = failures(trees)
    return f"all {leaves} rollouts failed; the first: {shortened(first)}" if failed and failed == leaves else ""


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

    def settled(self, group: Group[Any]) -> None:
        """A group is trained or dropped."""
        self.recent.append((_longest(group), group.usage == "trained"))

    def numbers(self, scheduler: Scheduler[Any], trained: Sequence[Group[Any]]) -> dict[str, float]:
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

    def _slow(self, waiting: Sequence[Group[Any]]) -> dict[str, float]:
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


def _longest(group: Group[Any]) -> int:
    return max((r.tokens for r in group.members), default=0)
