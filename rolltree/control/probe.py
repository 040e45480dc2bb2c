"""Looking at rollouts in flight: what a control sees of each at a given length, says about it, and learns from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rolltree.tree.store.values import storable

State: TypeAlias = NDArray[np.float32]
Over = Literal["group", "batch", "recent"]
"""Who is compared: the rollouts of a prompt that write side by side, those of all prompts of a round, or each rollout
with those seen lately (nobody waits for anybody, so any generator can be watched)."""


@storable
@dataclass(frozen=True, slots=True)
class Judgement:
    """What a probe says of a rollout."""

    score: float
    """The head's, in (0, 1)."""
    posterior: float
    """The probability of success that the calibrated score means."""
    keep: float
    """The probability with which the rollout goes on."""


@runtime_checkable
class PrunesInFlight(Protocol):
    """A control whose orders carry a probe."""

    @property
    def over(self) -> Over:
        """Who is compared."""
        ...


class Probe(Protocol):
    """Judges rollouts by the policy's last hidden state when they have so many tokens; trees tell groups apart."""

    @property
    def over(self) -> Over:
        """Who is compared."""
        ...

    def at(self, limit: int) -> int:
        """The policy tokens at which a rollout is looked at, where it may have at most `limit`."""
        ...

    def judge(self, states: Sequence[State], trees: Sequence[str]) -> list[Judgement]:
        """One judgement each."""
        ...


@storable
@dataclass(frozen=True, slots=True)
class Probed:
    """A rollout that was looked at, and what became of it."""

    state: State
    judgement: Judgement
    pruned: bool
    tokens: int
    """Policy tokens when it was looked at; what a pruned one has cost."""
    outcome: float | None = None
    """Mean outcome of what was written on from there; None where there is none: pruned, failed, not verified."""


def auc(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """Probability that a success is scored above a failure, ties counting half; NaN where one of them is missing."""
    values, right = np.asarray(scores, np.float64), np.asarray(labels, np.bool_)
    wins, losses = values[right], values[~right]
    if not len(wins) or not len(losses):
        return float("nan")
    below = np.searchsorted(np.sort(losses), wins, "left") + np.searchsorted(np.sort(losses), wins, "right")
    return float(below.mean() / 2 / len(losses))


def in_flight(probes: Sequence[Probed]) -> dict[str, float]:
    """What watching cost and was worth: rollouts and tokens pruned, the head against outcomes it had not seen."""
    known = [p for p in probes if p.outcome is not None]
    labels = [p.outcome is not None and p.outcome >= 0.5 for p in known]
    posteriors = np.array([p.judgement.posterior for p in probes])
    guesses = np.array([p.judgement.posterior for p in known])
    low, middle, high = np.quantile(posteriors, [0.1, 0.5, 0.9]) if len(probes) else (np.nan,) * 3
    none = float("nan")
    return {
        "budget/probed": float(len(probes)),
        "budget/probe_pruned": float(sum(p.pruned for p in probes)),
        "budget/probe_pruned_tokens": float(sum(p.tokens for p in probes if p.pruned)),
        "budget/probe_keep": float(np.mean([p.judgement.keep for p in probes])) if probes else none,
        "budget/probe_auc": auc([p.judgement.score for p in known], labels),
        "budget/probe_accuracy": float(np.mean((guesses >= 0.5) == np.array(labels))) if known else none,
        "budget/probe_brier": float(np.mean((guesses - np.array(labels)) ** 2)) if known else none,
        "budget/probe_posterior_low": float(low),
        "budget/probe_posterior_median": float(middle),
        "budget/probe_posterior_high": float(high),
    }
