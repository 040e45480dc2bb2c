"""Hints that make every prompt a coin toss: rounds of rollouts, and a curve over hint length in between (SEELE)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from rolltree.control.brief import brief
from rolltree.control.hints import beginning
from rolltree.control.methods.seele_irt import fit_curve
from rolltree.control.order import PLAIN, ControlError, Order, Prompt
from rolltree.control.plan import Plan, Step, one_by_one
from rolltree.tree.values import storable


@storable
@dataclass(slots=True)
class HintedOutcome:
    """By prompt: the hint rate to begin the next visit with, and the latest visit's (rate, accuracy, rollouts)."""

    rate: dict[str, float] = field(default_factory=dict[str, float])
    points: dict[str, list[list[float]]] = field(default_factory=dict[str, list[list[float]]])


@dataclass(frozen=True, slots=True)
class Seele:
    """`rounds` rounds per prompt, each after the beginning of a right answer as long as the curve says it must be.

    The first visit begins with all but the last step of the answer. All rollouts of a prompt are one group. Hinted
    rollouts are an arm of their own: they leave the pass rate alone. `stored` points of the last visit take part in the
    next fit: without them three parameters are fitted to one point after the first round.
    """

    name: ClassVar[str] = "seele"
    paper: ClassVar[str] = "2509.06923"
    needs: ClassVar[frozenset[str]] = frozenset({"solution", "one turn"})
    rounds: int = 4
    width: int = 0
    """Rollouts of a round; 0 = the strategy's width over `rounds`, at least 2; what is over goes to the last rounds."""
    accuracy: float = 0.5
    """Pass rate that the length of the hint aims at."""
    first: float = 0.9
    """Share of the answer shown at the very first visit ((steps − 1)/steps in the paper)."""
    stored: bool = True
    """Whether points of the last visit take part in the next fit."""
    gamma: float = 0.001
    """Weight of the likelihood of the hint itself; the recipe's credit applies it. 0 = hints do not train."""

    def __post_init__(self) -> None:
        if not 0 < self.accuracy < 1 or not 0 <= self.first < 1 or self.rounds < 1:
            raise ControlError(
                f"seele: accuracy={self.accuracy}, first={self.first} and rounds={self.rounds} make no sense; give "
                "shares below 1 and at least one round"
            )

    def start(self) -> HintedOutcome:
        """No prompt was visited."""
        return HintedOutcome()

    def plan(self, step: Step, state: HintedOutcome) -> Plan:
        """Every prompt by itself."""
        yield one_by_one(lambda prompt: self._one(prompt, step, state), step.take())

    def _one(self, prompt: Prompt, step: Step, state: HintedOutcome) -> Plan:
        assert step.solution is not None  # `needs` was checked
        answer = step.solution(prompt.item)
        share, over = divmod(step.width, self.rounds)
        widths = [self.width or max(share + (i >= self.rounds - over), 2) for i in range(self.rounds)]
        old = state.points.get(prompt.uid, []) if self.stored else []
        rate = state.rate.get(prompt.uid, self.first)
        points: list[list[float]] = []
        for width in widths:
            text = beginning(answer, rate)
            # All of the answer leaves nothing to do.
            text = text[:-1] if text == answer else text
            shown = brief(text, "hint", joins=True, trainable=self.gamma > 0) if text else None
            (d,) = yield [Order(prompt, width, "hint" if text else PLAIN, shown, why=f"hint rate {rate:.2f}")]
            if d.n:
                points.append([rate, d.rate, float(d.n)])
            known = [*old, *points]
            if known:
                curve = fit_curve([p[0] for p in known], [p[1] for p in known], [int(p[2]) for p in known])
                rate = curve.inverse(self.accuracy)
        state.rate[prompt.uid] = rate
        state.points[prompt.uid] = points
