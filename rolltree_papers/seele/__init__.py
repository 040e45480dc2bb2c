"""SEELE: capability-adaptive hints (arXiv 2509.06923)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from rolltree.control.brief import brief
from rolltree.control.hints import beginning
from rolltree.control.order import PLAIN, ControlError, Order, Prompt
from rolltree.control.plan import Plan, Step, one_by_one
from rolltree.credit.advantage import Advantage, Credit
from rolltree.credit.registry import load_credit, register, resolve
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.need import Need
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree.store.values import storable
from rolltree.tree.table import Table

# Accuracy as a function of how much of the solution is given: the three-parameter curve SEELE fits per prompt.


@dataclass(frozen=True, slots=True)
class Curve:
    """f(p) = b + (1 − b) / (1 + exp(−k (p + μ))) at hint rate p (SEELE, arXiv 2509.06923)."""

    floor: float
    """b: accuracy without any insight."""
    slope: float
    """k."""
    shift: float
    """μ."""

    def __call__(self, rate: float) -> float:
        """Accuracy at a hint rate."""
        return self.floor + (1 - self.floor) / (1 + math.exp(-max(min(self.slope * (rate + self.shift), 50), -50)))

    def inverse(self, accuracy: float) -> float:
        """The hint rate with this accuracy, within [0, 1); 0 where the prompt is as easy without a hint."""
        if accuracy <= self.floor:
            return 0.0
        ratio = (1 - self.floor) / (accuracy - self.floor) - 1
        rate = -self.shift - math.log(max(ratio, 1e-12)) / self.slope
        return min(max(rate, 0.0), 1 - 1e-9)


def fit_curve(rates: Sequence[float], accuracies: Sequence[float], counts: Sequence[int]) -> Curve:
    """Weighted least squares on a grid that is refined three times around its best point.

    Equal rates are weighted by their rollouts, which is averaging them. With fewer points than parameters a weak pull
    towards b = 0, k = 8 and a middle at one half decides.
    """
    x, y, w = np.asarray(rates, float), np.asarray(accuracies, float), np.asarray(counts, float)
    centre, span = np.array([0.15, math.log(8), 0.5]), np.array([0.15, math.log(8), 0.75])
    for _ in range(4):
        axes = [np.linspace(c - s, c + s, m) for c, s, m in zip(centre, span, (5, 7, 11), strict=True)]
        b, k, middle = np.meshgrid(np.clip(axes[0], 0, 0.49), np.clip(axes[1], 0, math.log(64)), axes[2], indexing="ij")
        z = np.clip(np.exp(k)[..., None] * (x - middle[..., None]), -50, 50)
        error = (w * (b[..., None] + (1 - b[..., None]) / (1 + np.exp(-z)) - y) ** 2).sum(-1)
        error = error + 0.02 * ((b / 0.2) ** 2 + (k - math.log(8)) ** 2 + (middle - 0.5) ** 2)
        at = np.unravel_index(int(np.argmin(error)), error.shape)
        centre, span = np.array([b[at], k[at], middle[at]]), span / 3
    return Curve(float(centre[0]), float(math.exp(centre[1])), float(-centre[2]))


# Hints that make every prompt a coin toss: rounds of rollouts, and a curve over hint length in between (SEELE).


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


# The likelihood of a shown hint beside the group's advantages (SEELE).


@register("hint_likelihood", paper="SEELE, arXiv:2509.06923", family="shaping")
@dataclass(frozen=True, slots=True)
class HintLikelihood:
    """The base's advantages on what the policy wrote, and a constant γ on the actions of hints that train (SEELE).

    γ at ratio 1 is the gradient of γ log π(hint), a supervised term; what became of the rollout does not touch the
    hint. Hints that do not train stay out of it. γ = 0 leaves hints alone.
    """

    base: Credit | str = "dr_grpo"
    gamma: float = 0.001

    @property
    def needs(self) -> frozenset[str]:
        """The base's."""
        return resolve(self.base).needs

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage off the hints, γ on them."""
        advantage = resolve(self.base)(table)
        hint = np.fromiter(
            (n.role == "hint" and t for n, t in zip(table.nodes, table.trainable, strict=True)), np.bool_
        )
        if not hint.any():
            return advantage
        at = np.repeat(hint, table.length)
        factor = np.ones(table.actions) if advantage.factor is None else advantage.factor
        action = np.zeros(table.actions) if advantage.action is None else advantage.action
        return replace(advantage, factor=np.where(at, 0.0, factor), action=np.where(at, self.gamma, action))


@dataclass(frozen=True, slots=True)
class SeeleRecipe:
    """Rounds of rollouts after as much of a right answer as makes them a coin toss; the hint is cloned a little.

    All rollouts of a prompt share one baseline though their hints differ in length. Judge it by unhinted accuracy.
    """

    card: ClassVar[Card] = Card(
        "seele", "Capability-adaptive hint scaffolding", "2509.06923", 2025,
        "+11.8 points over GRPO and +3.6 over the best hint method on six mathematics sets",
        ("generate", "control", "credit"), "dr_grpo",
        Evidence("a(1−a) at the third visit", "half of the answer always shown", "higher", 0.02, seeds=5,
                 check="rolltree_papers.seele.study:seele"),
        needs=(Need.revisits,), counter=Counter("budget/arm/hint"),
    )  # fmt: skip
    group: int = 16
    rounds: int = 4
    accuracy: float = 0.5
    """Pass rate that the hint is to bring a prompt to."""
    gamma: float = 0.001
    clip: float = 0.2
    kl: float = 0.0
    """Weight of the penalty towards the starting policy; 0.001 in the paper."""

    def build(self) -> Parts:
        """Hinted rounds, group mean, the hint's likelihood."""
        check_group("seele", self.group, 2 * self.rounds)
        return Parts(
            "seele", Independent(self.group), load_credit("hint_likelihood", base="dr_grpo", gamma=self.gamma),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="token",
            control=Seele(self.rounds, accuracy=self.accuracy, gamma=self.gamma),
        )  # fmt: skip
