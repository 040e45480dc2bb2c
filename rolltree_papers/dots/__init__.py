"""DOTS: difficulty-targeted online data selection with rollout replay (arXiv 2506.05316)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rolltree.control.corpus import likeness
from rolltree.control.order import ControlError, Order
from rolltree.control.plan import Plan, Step
from rolltree.control.pool import Pool, check_pool, measured, softmax_draw
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.need import Need
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.replay.buffer import Recall
from rolltree.tree.store.values import storable

# Pass rates of all prompts from a few measured ones: attention over references, calibrated on themselves (DOTS).

Floats = NDArray[np.float64]
SHARPNESS = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Candidates for the inverse temperature of the attention."""


@dataclass(frozen=True, slots=True)
class Attention:
    """p(q) = σ(a + b · logit(Σ softmax(β · cos(q, ref)) · label)): DOTS's predictor without its trained projections.

    β, a and b are fitted to the references, each predicted from the others (the paper trains its adapter and
    calibration offline on a frozen embedding model; fitting them to the references of the moment is reconstructed).
    """

    references: tuple[str, ...]
    labels: tuple[float, ...]
    sharpness: float
    offset: float
    slope: float

    def predict(self, texts: Sequence[str]) -> Floats:
        """Expected pass rates."""
        base = _attend(likeness(texts, self.references), np.asarray(self.labels), self.sharpness)
        return _sigmoid(self.offset + self.slope * _logit(base))


def fit_attention(references: Sequence[str], labels: Sequence[float]) -> Attention:
    """Fit to references with measured pass rates; with fewer than three it predicts their mean."""
    y = np.asarray(labels, np.float64)
    like = likeness(references, references)
    np.fill_diagonal(like, -np.inf)
    best = (np.inf, SHARPNESS[0], 0.0, 1.0)
    for sharpness in SHARPNESS if len(y) > 2 else ():
        x = _logit(_attend(like, y, sharpness))
        offset, slope = _logistic(x, y)
        loss = _loss(offset + slope * x, y)
        if loss < best[0] - 1e-12:
            best = (loss, sharpness, offset, slope)
    return Attention(tuple(references), tuple(float(v) for v in y), *best[1:])


def _attend(like: Floats, labels: Floats, sharpness: float) -> Floats:
    scores = sharpness * like
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights @ labels / weights.sum(axis=1)


def _logistic(x: Floats, y: Floats, ridge: float = 1.0, steps: int = 30) -> tuple[float, float]:
    """Offset and slope that minimise the cross-entropy of shares y plus ridge · ((slope − 1)² + offset²) / 2."""
    design = np.stack([np.ones(len(x)), x], 1)
    at = np.array([0.0, 1.0])
    for _ in range(steps):
        p = _sigmoid(design @ at)
        gradient = design.T @ (p - y) + ridge * (at - np.array([0.0, 1.0]))
        curvature = (design * (p * (1 - p))[:, None]).T @ design + ridge * np.eye(2)
        move = np.linalg.solve(curvature, gradient)
        at = at - np.clip(move, -2, 2)
        if np.abs(move).max() < 1e-9:
            break
    return float(at[0]), float(at[1])


def _loss(logits: Floats, y: Floats) -> float:
    return float(np.mean(np.logaddexp(0, logits) - y * logits))


def _logit(p: Floats) -> Floats:
    clipped = np.clip(p, 0.01, 0.99)
    return np.log(clipped / (1 - clipped))


def _sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-np.clip(x, -50, 50)))


# Difficulty-targeted selection: references are measured, all prompts predicted, those near one half train (DOTS).


@storable
@dataclass(slots=True)
class DotsState:
    """The candidates and what was predicted for them."""

    pool: Pool
    predicted: dict[str, float] = field(default_factory=dict[str, float])
    measured_in: int = 0
    """The step of the latest measurement."""


@dataclass(frozen=True, slots=True)
class Dots:
    """Prompts drawn without replacement by softmax(−|p̂ − target| / τ), p̂ from attention over measured references.

    References cost rollouts that do not train (they are dropped with that reason and counted). The embedding is by
    character trigrams, not a language model's; see `rolltree_papers.dots` for what is fitted.
    """

    name: ClassVar[str] = "dots"
    paper: ClassVar[str] = "2506.05316"
    needs: ClassVar[frozenset[str]] = frozenset()
    pool: int = 256
    """Candidate prompts."""
    fresh: int = 0
    """How many of them are replaced by new ones each step."""
    references: int = 16
    """Prompts measured each time (256 in the paper, of a batch of 512 over its two steps)."""
    rollouts: int = 0
    """Rollouts of each reference; 0 = the strategy's width."""
    every: int = 2
    """Steps between measurements."""
    target: float = 0.5
    """Pass rate of the prompts that are drawn most."""
    tau: float = 1e-3
    """Temperature; the published 0.001 is practically greedy."""

    def __post_init__(self) -> None:
        check_pool(self.name, self.pool, self.fresh)
        if self.references < 1 or self.every < 1 or self.tau <= 0:
            raise ControlError(
                f"dots: references={self.references}, every={self.every} and tau={self.tau} must all be above 0"
            )

    def start(self) -> DotsState:
        """Nothing is known."""
        return DotsState(Pool(self.pool, self.fresh))

    def plan(self, step: Step, state: DotsState) -> Plan:
        """A round of references when they are due, then the round that trains."""
        items = state.pool.items(step.supply)
        if not state.predicted or step.number - state.measured_in >= self.every:
            chosen = step.rng.permutation(len(items))[: self.references]
            known = yield from measured(step, [items[i] for i in chosen], self.rollouts, "reference")
            if known:
                fitted = fit_attention([d.order.prompt.item.prompt for d in known], [d.rate for d in known])
                predicted = fitted.predict([i.prompt for i in items])
                state.predicted = {i.id: float(p) for i, p in zip(items, predicted, strict=True)}
                state.measured_in = step.number
        rates = np.array([state.predicted.get(i.id, self.target) for i in items])
        chosen = softmax_draw(-np.abs(rates - self.target) / self.tau, step.prompts, step.rng)
        prompts = step.prompts_of([items[i] for i in chosen])
        yield [Order(p, why=f"predicted {rates[i]:.2f}", last=True) for p, i in zip(prompts, chosen, strict=True)]


@dataclass(frozen=True, slots=True)
class DotsRecipe:
    """GRPO on prompts predicted to be solved half the time, half of them replayed from earlier steps.

    Whole groups with variance are replayed as they were sampled, with advantages computed anew; the loss weighs them
    by π_old / π_sampled, without a bound, and centres its clip on the current policy. `replay=0` leaves replay out.
    Predictions come from character trigrams and a fit to the references at hand, instead of a trained adapter on a
    language model's embeddings. Released code remembers groups without variance too.
    """

    card: ClassVar[Card] = Card(
        "dots", "Difficulty-targeted selection and rollout replay", "2506.05316", 2025,
        "23 to 62 % less time to reach GRPO's score on six pairs of model and data set",
        ("control", "replay", "objective"), "grpo",
        Evidence("correlation of predicted and true pass rate", "each prompt's last seen rate", "higher", 0.05,
                 seeds=5, check="rolltree_papers.dots.study:dots"),
        needs=(Need.revisits,), counter=Counter("budget/arm/measured"),
    )  # fmt: skip
    group: int = 8
    pool: int = 256
    """Candidate prompts."""
    references: int = 16
    """Prompts measured each time (256 in the paper, of a batch of 512 over its two steps)."""
    every: int = 2
    """Steps between measurements."""
    target: float = 0.5
    """Pass rate that prompts are predicted to have when they are chosen."""
    tau: float = 1e-3
    """Temperature; the published 0.001 is practically greedy."""
    replay: float = 0.5
    """Share of a batch's prompts whose groups come from earlier steps, the paper's 1 − σ."""
    window: int = 2
    """Steps it reaches back: the paper's buffer holds 512 groups, where a step grows 256."""
    clip: float = 0.2

    def build(self) -> Parts:
        """GRPO with another choice of prompts, and a buffer of groups."""
        check_group("dots", self.group)
        return Parts(
            "dots", Independent(self.group), load_credit("grpo"),
            load_objective("decoupled", clip_low=self.clip, clip_high=self.clip, bound="none"), averaging="sequence",
            control=Dots(
                self.pool, references=self.references, every=self.every, target=self.target, tau=self.tau
            ),
            recall=Recall(self.replay, self.window, informative=True) if self.replay else None,
        )  # fmt: skip
