"""GDRO: distributionally robust groups, by weight and by width (arXiv 2601.19280)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from rolltree.control.allocate import exact_sum, proportional
from rolltree.control.order import ControlError, Delivery, Order
from rolltree.control.plan import Plan, Step
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.need import Need
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree.store.values import storable

# Slow controllers of GDRO: adversaries that keep scores, and the price of a rollout.


@storable
@dataclass(slots=True)
class Exp3P:
    """Exponential weights over a fixed number of arms with uniform exploration (Auer et al. 2002, as GDRO uses them).

    Scores are moving averages, S ← (1 − beta) S + beta · what was seen, so they neither saturate nor outlive the
    policy they were measured on; beta = 1 keeps the last value only.
    """

    arms: int
    eta: float = 0.1
    gamma: float = 0.15
    beta: float = 0.1
    clip: float = 5.0
    scores: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        self.scores = self.scores or [0.0] * self.arms

    def observe(self, arm: int, value: float) -> None:
        """What choosing (or weighing) an arm showed."""
        self.scores[arm] += self.beta * (value - self.scores[arm])

    def weights(self, among: Sequence[int] | None = None) -> NDArray[np.float64]:
        """exp(η · clip(S)) of the arms asked for, not normalised."""
        chosen = range(self.arms) if among is None else among
        return np.exp(self.eta * np.clip([self.scores[i] for i in chosen], -self.clip, self.clip))

    def shares(self, among: Sequence[int] | None = None) -> NDArray[np.float64]:
        """(1 − γ) of the normalised weights, mixed with γ of the uniform distribution."""
        w = self.weights(among)
        return (1 - self.gamma) * w / w.sum() + self.gamma / len(w)


@storable
@dataclass(slots=True)
class DualPrice:
    """The price of one rollout: it rises while more are used than `goal`, and falls to 0 while fewer are."""

    rate: float = 0.01
    price: float = 0.0

    def observe(self, used: float, goal: float) -> None:
        """One step's mean rollouts per prompt against the goal."""
        self.price = max(0.0, self.price + self.rate * (used - goal))


# Difficulty bins from outcomes so far, with hysteresis so that a prompt on a border does not flip (GDRO).


@storable
@dataclass(slots=True)
class Bins:
    """Each prompt's windowed mean of "any rollout of a visit was right", cut into `count` bins (arXiv 2601.19280).

    A prompt changes its bin only if its mean passes the border by `margin`. With `graded` the mean is of pass rates.
    """

    count: int = 10
    window: int = 8
    """Visits remembered; 0 = all."""
    margin: float = 0.02
    graded: bool = False
    visits: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    places: dict[str, int] = field(default_factory=dict[str, int])

    def of(self, uid: str) -> int:
        """A prompt's bin, 0 the hardest; the middle one before the first visit."""
        return self.places.get(uid, self.count // 2)

    def observe(self, uid: str, solved: float, n: int) -> None:
        """Add a visit and perhaps change the bin."""
        if not n:
            return
        past = [*self.visits.get(uid, ()), solved / n if self.graded else float(solved > 0)]
        self.visits[uid] = past[-self.window :] if self.window else past
        mean = sum(self.visits[uid]) / len(self.visits[uid])
        here = self.places.get(uid)
        to = min(math.floor(mean * self.count), self.count - 1)
        if here is None:
            self.places[uid] = to
        elif to != here:
            border = (here + 1) / self.count if to > here else here / self.count
            # At the very ends no mean can lie beyond a border by more than there is room.
            room = min(self.margin, 1 - border if to > here else border)
            if abs(mean - border) >= room - 1e-12:
                self.places[uid] = to


# Group distributionally robust training over difficulty bins: one adversary weighs prompts, one sets widths (GDRO).

Reading = Literal["paper", "code"]


@storable
@dataclass(slots=True)
class WeighState:
    """Bins of the prompts and the adversary over them."""

    bins: Bins
    adversary: Exp3P


@dataclass(frozen=True, slots=True)
class PromptGdro:
    """Advantages of a prompt are multiplied by its bin's weight, which grows with the bin's loss (Prompt-GDRO).

    The loss of a bin is its mean failure rate, 1 − p: the published GRPO surrogate is about 0 at ratio 1, whatever the
    bin. "paper" multiplies by exp(η·S) up to `most`; "code" by the normalised share, which with ten bins is a step some
    ten times smaller (the released code's reading).
    """

    name: ClassVar[str] = "prompt-gdro"
    paper: ClassVar[str] = "2601.19280"
    needs: ClassVar[frozenset[str]] = frozenset()
    bins: int = 10
    """Bins of prompts by pass rate."""
    eta: float = 1.0
    """Temperature of the weights. The paper's 0.1 is for scores that are sums of losses; these are means in 0..1."""
    beta: float = 0.1
    """Weight of the newest loss in a bin's moving average."""
    gamma: float = 0.15
    most: float = 3.0
    """Largest weight."""
    reading: Reading = "paper"
    """Whether to multiply by the weight itself (paper), or by its share among the bins (code)."""
    debias: bool = True
    """Divide a bin's score by its share of the step, so that rare bins are not starved (at most tenfold)."""

    def __post_init__(self) -> None:
        if self.reading not in ("paper", "code"):
            raise ControlError(f'prompt-gdro: reading={self.reading!r} is unknown; choose "paper" or "code"')

    def start(self) -> WeighState:
        """All bins weigh the same."""
        return WeighState(Bins(self.bins), Exp3P(self.bins, self.eta, self.gamma, self.beta))

    def plan(self, step: Step, state: WeighState) -> Plan:
        """One round, with weights from the steps before."""
        prompts = step.take()
        place = [state.bins.of(p.uid) for p in prompts]
        present = sorted(set(place))
        shares = state.adversary.shares(present) if self.reading == "code" else state.adversary.weights(present)
        weight = {b: min(float(w), self.most) for b, w in zip(present, shares, strict=True)}
        delivered = yield [
            Order(p, marks={"prompt_weight": weight[b]}, why=f"bin {b} weighs {weight[b]:.2f}", last=True)
            for p, b in zip(prompts, place, strict=True)
        ]
        missed: dict[int, list[float]] = defaultdict(list)
        for d, b in zip(delivered, place, strict=True):
            if d.n:
                missed[b].append(1 - d.rate)
        for b, values in missed.items():
            rare = min(len(prompts) / len(values) / len(missed), 10.0) if self.debias else 1.0
            state.adversary.observe(b, float(np.mean(values)) * rare)
        for d in delivered:
            state.bins.observe(d.order.prompt.uid, d.solved, d.n)


@storable
@dataclass(slots=True)
class WidthState:
    """Bins, an adversary over widths in each, and the price of a rollout."""

    bins: Bins
    price: DualPrice
    widths: list[Exp3P] = field(default_factory=list[Exp3P])
    spreads: dict[int, float] = field(default_factory=dict[int, float])
    """Moving average of each bin's variance within prompts."""


@dataclass(frozen=True, slots=True)
class RolloutGdro:
    """Each bin plays EXP3P over widths; a dynamic programme picks one per bin so that the step costs its budget.

    Bins are of mean pass rates, not of "any rollout right" as Prompt-GDRO's: that share grows with the width itself.
    A width n of a bin with within-prompt variance σ² loses σ²/n · mean + price · n, the theory's variance proxy; its
    minimum is the square-root law n ∝ σ. "code" lets losing widths gain, as the released code does. That the choice
    is perturbed by Gumbel noise, and so a draw (`draw`), is reconstructed.
    """

    name: ClassVar[str] = "rollout-gdro"
    paper: ClassVar[str] = "2601.19280"
    needs: ClassVar[frozenset[str]] = frozenset()
    bins: int = 10
    """Bins of prompts by pass rate."""
    mean: int = 0
    """Rollouts per prompt on average; 0 = the strategy's width."""
    least: int = 2
    """Fewest rollouts of a prompt."""
    most: int = 0
    """Largest width; 0 = twice the mean."""
    eta: float = 20.0
    """How strongly a bin prefers the widths with the best scores."""
    gamma: float = 0.15
    beta: float = 0.2
    """Weight of the newest numbers in a bin's moving averages."""
    price_rate: float = 0.01
    """How fast the price of a rollout rises while more are used than planned."""
    rule: Literal["bandit", "root"] = "bandit"
    """"root" gives widths by the square-root law of the bins' measured variances, without a game."""
    reading: Reading = "paper"
    """Whether widths with a loss lose (paper), or gain, as the released code has it (code)."""
    draw: bool = True
    """Draw widths by their shares; otherwise the most likely ones that cost the budget are taken."""

    def __post_init__(self) -> None:
        if self.reading not in ("paper", "code"):
            raise ControlError(f'rollout-gdro: reading={self.reading!r} is unknown; choose "paper" or "code"')
        if self.rule not in ("bandit", "root"):
            raise ControlError(f'rollout-gdro: rule={self.rule!r} is unknown; choose "bandit" or "root"')
        if self.least < 1 or (self.most and self.most < self.least):
            raise ControlError(
                f"rollout-gdro: widths from {self.least} to {self.most} make no sense; give 1 <= least <= most"
            )

    def start(self) -> WidthState:
        """All widths look alike."""
        return WidthState(Bins(self.bins, graded=True), DualPrice(self.price_rate))

    def plan(self, step: Step, state: WidthState) -> Plan:
        """One round of unequal widths."""
        mean = self.mean or step.width
        widths = range(min(self.least, mean), max(self.most or 2 * mean, mean) + 1)
        if not state.widths:
            state.widths = [Exp3P(len(widths), self.eta, self.gamma, self.beta) for _ in range(self.bins)]
        prompts = step.take()
        place = [state.bins.of(p.uid) for p in prompts]
        if self.rule == "root":
            # A bin never seen counts as the most uncertain there can be.
            roots = [state.spreads.get(b, 0.25) ** 0.5 for b in place]
            given = proportional(roots, mean * len(prompts), widths[0], widths[-1])
        else:
            present = sorted(set(place))
            worth = [np.log(state.widths[b].shares()) for b in present]
            if self.draw:
                worth = [w + step.rng.gumbel(size=len(widths)) for w in worth]
            sizes = [place.count(b) for b in present]
            chosen = exact_sum([list(w) for w in worth], sizes, widths, mean * len(prompts))
            given = [widths[chosen[present.index(b)]] for b in place]
        delivered = yield [
            Order(p, n, why=f"bin {b} has width {n}", last=True) for p, b, n in zip(prompts, place, given, strict=True)
        ]
        self._learn(state, delivered, place, given, widths[0], mean)

    def _learn(
        self,
        state: WidthState,
        delivered: Sequence[Delivery],
        place: list[int],
        given: list[int],
        least: int,
        mean: int,
    ) -> None:
        found: dict[int, list[float]] = defaultdict(list)
        width: dict[int, int] = {}
        for d, b, n in zip(delivered, place, given, strict=True):
            width[b] = n
            if d.n > 1:
                found[b].append(d.rate * (1 - d.rate) * d.n / (d.n - 1))
            state.bins.observe(d.order.prompt.uid, d.solved, d.n)
        for b, values in found.items():
            spread, n = float(np.mean(values)), width[b]
            old = state.spreads.get(b, 0.25)
            state.spreads[b] = old + self.beta * (spread - old)
            noise = spread * mean / n
            if self.reading == "paper":
                state.widths[b].observe(n - least, -(noise + state.price.price * n))
            else:
                state.widths[b].observe(n - least, noise - state.price.price * (n - mean))
        if given:
            state.price.observe(float(np.mean(given)), mean)


@dataclass(frozen=True, slots=True)
class PromptGdroRecipe:
    """GRPO whose advantages are weighted by an adversary over difficulty bins.

    As the paper has it no weight is below 1, so that all is learned faster too; its evidence divides those of a step by
    their mean.
    """

    card: ClassVar[Card] = Card(
        "prompt_gdro", "Prompt-GDRO", "2601.19280", 2026,
        "pass@8 +10.6 % relative over GRPO (Qwen3-1.7B/4B/8B base, DAPO 14.1k)", ("control", "credit"), "grpo",
        Evidence("pass rate of the worst bin, weights of mean 1 a step", "uniform weights", "higher", 0.005, seeds=5,
                 check="rolltree_papers.gdro.study:prompt_gdro"),
        needs=(Need.revisits,), counter=Counter("policy/credit_apart"),
    )  # fmt: skip
    group: int = 8
    eta: float = 1.0
    """Temperature of the weights. The paper's 0.1 is for scores that are sums of losses; these are means in
    0..1."""
    reading: Reading = "paper"
    """Which reading of the method: the paper's, or the released code's."""
    debias: bool = True
    """Divide a bin's score by its share of the step, so that rare bins are not starved (at most tenfold)."""
    clip: float = 0.2

    def build(self) -> Parts:
        """GRPO with prompt weights."""
        check_group("prompt_gdro", self.group)
        return Parts(
            "prompt_gdro", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=PromptGdro(eta=self.eta, reading=self.reading, debias=self.debias),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RolloutGdroRecipe:
    """GRPO whose bins are given widths by bandits under one rollout budget."""

    card: ClassVar[Card] = Card(
        "rollout_gdro", "Rollout-GDRO", "2601.19280", 2026,
        "pass@8 +10.1 % relative over GRPO (Qwen3-1.7B/4B/8B base, DAPO 14.1k)", ("control",), "grpo",
        Evidence("summed variance of group means", "uniform width", "lower", 0.0, seeds=5,
                 check="rolltree_papers.gdro.study:rollout_gdro"),
        needs=(Need.revisits,), counter=Counter("rollout/group_size_spread"),
    )  # fmt: skip
    group: int = 8
    least: int = 2
    """Smallest width of a bin."""
    most: int = 0
    """Largest width; 0 = twice the mean."""
    reading: Reading = "paper"
    """Which reading of the method: the paper's, or the released code's."""
    clip: float = 0.2

    def build(self) -> Parts:
        """GRPO with widths per bin."""
        check_group("rollout_gdro", self.group)
        return Parts(
            "rollout_gdro", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=RolloutGdro(least=self.least, most=self.most, reading=self.reading),
        )  # fmt: skip
