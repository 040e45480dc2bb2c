"""Difficulty-targeted selection: references are measured, all prompts predicted, those near one half train (DOTS)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rolltree.control.measured import measured
from rolltree.control.methods.dots_attention import fit_attention
from rolltree.control.order import ControlError, Order
from rolltree.control.plan import Plan, Step
from rolltree.control.pool import Pool, check_pool, softmax_draw
from rolltree.tree.values import storable


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
    character trigrams, not a language model's; see `rolltree.control.methods.dots_attention` for what is fitted.
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
