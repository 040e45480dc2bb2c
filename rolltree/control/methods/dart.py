"""Fewer rollouts of what is solved, shorter horizons, and a past success where all fail (DART)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rolltree.control.order import ControlError, Delivery, Order, Prompt, Written
from rolltree.control.plan import Plan, Step
from rolltree.tree.values import storable

RESCUE = "rescue"
"""Arm of the successes that come from before."""


@storable
@dataclass(slots=True)
class DartState:
    """The newest success of each prompt, and the most environment steps that one took."""

    newest: dict[str, Written] = field(default_factory=dict[str, Written])
    longest: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Dart:
    """Widths and horizons by what was seen of a prompt; a group of failures gets the newest success in its oldest's
    place.

    A prompt solved at a rate p of at least `threshold` gets (n + 1)/p − (n − 1) rollouts, which for n = 8 is 9/p − 7: 8
    at 0.6, 2 at 1. A success is given turn by turn with the log-probs it was sampled with, so a correction can weigh
    it; its environment is played again and its outcome judged again.
    """

    name: ClassVar[str] = "dart"
    paper: ClassVar[str] = "2509.23866"
    needs: ClassVar[frozenset[str]] = frozenset()
    threshold: float = 0.6
    """Pass rate from which on a prompt gets fewer rollouts; 1.0 in the released configuration."""
    least: int = 1
    """Fewest rollouts of a prompt."""
    shorten: bool = True
    """Whether a prompt's horizon is that of its longest success; which margin the paper leaves is not known."""
    most: int = 4096
    """Prompts that are remembered."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1 or self.least < 1:
            raise ControlError(
                f"dart: threshold={self.threshold} must be a share above 0, and least={self.least} 1 or more"
            )

    def start(self) -> DartState:
        """Nothing solved yet."""
        return DartState()

    def width(self, rate: float | None, usual: int) -> int:
        """Rollouts of a prompt with this pass rate; None = it was never seen."""
        if rate is None or rate < self.threshold:
            return usual
        return min(usual, max(self.least, int((usual + 1) / rate - (usual - 1) + 1e-9)))

    def plan(self, step: Step, state: DartState) -> Plan:
        """A round, and the rescue of groups in which all fail."""
        delivered = yield [self._order(step, prompt, state) for prompt in step.take()]
        dead = [d for d in delivered if d.n and max(d.rewards) <= 0 and d.order.prompt.uid in state.newest]
        self._learn(delivered, state)
        if dead:
            yield [
                Order(d.order.prompt, arm=RESCUE, given=(state.newest[d.order.prompt.uid],), replaces=1, last=True,
                      why=f"none of {d.n} solved: its newest success takes the oldest failure's place")
                for d in dead
            ]  # fmt: skip

    def _order(self, step: Step, prompt: Prompt, state: DartState) -> Order:
        rate = step.history.rate(prompt.uid)
        turns = state.longest.get(prompt.uid) if self.shorten else None
        return Order(prompt, self.width(rate, step.width), turns=turns or None, texts=True)

    def _learn(self, delivered: Sequence[Delivery], state: DartState) -> None:
        for d in delivered:
            uid = d.order.prompt.uid
            won = [i for i, reward in enumerate(d.rewards) if reward > 0 and d.written[i] is not None]
            if not won:
                continue
            newest = d.written[won[-1]]
            assert newest is not None
            state.newest.pop(uid, None)
            state.newest[uid] = newest
            state.longest[uid] = max(state.longest.get(uid, 0), *(d.turns[i] for i in won))
            while len(state.newest) > self.most:
                gone = next(iter(state.newest))
                del state.newest[gone], state.longest[gone]
