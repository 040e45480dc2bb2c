"""Group distributionally robust training over difficulty bins: one adversary weighs prompts, one sets widths (GDRO)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from rolltree.control.allocate import exact_sum, proportional
from rolltree.control.methods.gdro_bandit import DualPrice, Exp3P
from rolltree.control.methods.gdro_bins import Bins
from rolltree.control.order import ControlError, Delivery, Order
from rolltree.control.plan import Plan, Step
from rolltree.tree.values import storable

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
