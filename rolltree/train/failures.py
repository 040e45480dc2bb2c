"""What broke while rollouts grew, said as soon as it is known: on the screen, in the log and in metrics.jsonl."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rolltree.train.config import TrainError
from rolltree.train.loop import RunEvent
from rolltree.train.metrics import MetricsLog
from rolltree.tree import Tree

KIND = "failures"
"""Kind of the lines in metrics.jsonl: `failed` leaves of `leaves`, and `why`, the commonest cause, in words."""


@dataclass(frozen=True, slots=True)
class Failures:
    """Failed leaves of some trees."""

    leaves: int
    judged: int
    failed: int
    why: str
    """The commonest cause: what was asked and the exception."""


def failures_of(trees: Iterable[Tree]) -> Failures:
    """How many leaves failed, and what of."""
    leaves = judged = failed = 0
    causes: Counter[str] = Counter()
    for tree in trees:
        for leaf in tree.leaves():
            leaves += 1
            judged += "reward" in leaf.scores
            failed += leaf.status == "failed"
        causes.update(event.why for event in tree.events if event.kind == "fail" and event.why)
    return Failures(leaves, judged, failed, causes.most_common(1)[0][0] if causes else "")


@dataclass(slots=True)
class FailureLog:
    """Listens to a run; says each cause when it first appears and writes a line for every step that lost rollouts.

    Where nothing at all could be judged, from the first rollout on, the run ends: there is nothing to learn from.
    """

    metrics: MetricsLog
    say: Callable[[str], None]
    judged: bool = False
    """Whether anything was judged yet (a resumed run takes it for granted)."""
    _said: set[str] = field(default_factory=set[str])

    def __call__(self, live: RunEvent) -> None:
        """Look at what has just been grown."""
        if live.kind not in ("grown", "evaluated"):
            return
        found = failures_of(live.trees)
        self.judged = self.judged or found.judged > 0
        if not found.failed:
            return
        what = "held-out rollouts" if live.kind == "evaluated" else "rollouts"
        told = f"{found.failed} of {found.leaves} {what} failed: {found.why}"
        self.metrics.write_words(KIND, live.step, failed=found.failed, leaves=found.leaves, why=found.why)
        cause = _kind(found.why)
        if cause not in self._said:
            self._said.add(cause)
            self.say(f"step {live.step}: {told}")
        if not self.judged and found.failed == found.leaves:
            raise TrainError(f"{told}; no rollout could be judged, so there is nothing to learn from; mend this first")


def _kind(why: str) -> str:
    """A cause without what differs from item to item."""
    before, _, after = why.partition(" item ")
    return before + (after.partition(":")[2] if ":" in after else "")
