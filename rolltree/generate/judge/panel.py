"""Several judges, or several questions, as one: panels with reliabilities, and criteria with a fitted aggregator.

Reliabilities are estimated without the truth, from how judges agree (Dawid & Skene 1979); the aggregator of criteria is
fitted where the truth is known (logistic, with a ridge) and used where it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from rolltree.generate.judge.protocol import Judge, JudgeError, Opinion, Question, fitting
from rolltree.generate.random import mix

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand

Floats = NDArray[np.float64]
Aggregate = Literal["mean", "median", "majority", "reliability"]


@dataclass(frozen=True, slots=True)
class Fitted:
    """p = σ(b + w·x) over the numbers that several criteria gave."""

    weights: tuple[float, ...]
    bias: float = 0.0

    def __call__(self, numbers: Floats) -> Floats:
        """The probability for each row."""
        return 1 / (1 + np.exp(-(numbers @ np.asarray(self.weights) + self.bias)))


def fit(numbers: Floats, truth: Sequence[bool], ridge: float = 1.0, steps: int = 50) -> Fitted:
    """Logistic regression with a ridge on the weights, by Newton's method."""
    x = np.column_stack([np.asarray(numbers, np.float64), np.ones(len(truth))])
    y, beta = np.asarray(truth, np.float64), np.zeros(x.shape[1])
    penalty = ridge * np.diag([*([1.0] * (x.shape[1] - 1)), 1e-9])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-(x @ beta)))
        step = np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x + penalty, x.T @ (y - p) - penalty @ beta)
        beta = beta + step
        if np.abs(step).max() < 1e-9:
            break
    return Fitted(tuple(float(b) for b in beta[:-1]), float(beta[-1]))


@dataclass(frozen=True, slots=True)
class Panel:
    """Several judges on the same questions, aggregated; a judge that abstains or breaks is left out of that question.

    "reliability" takes grades of at least one half as votes for an entry, and weighs them by how well each judge agrees
    with the others over all questions of the batch; it wants some twenty of them.
    """

    judges: tuple[Judge, ...]
    aggregate: Aggregate = "mean"
    fitted: Fitted | None = None
    """For several criteria: the aggregator, instead of `aggregate`; it needs every judge's number."""

    def __post_init__(self) -> None:
        if not self.judges:
            raise JudgeError("a panel without judges says nothing; give it at least one")
        if self.fitted is not None and len(self.fitted.weights) != len(self.judges):
            raise JudgeError(
                f"the panel's aggregator was fitted to {len(self.fitted.weights)} judges and is given "
                f"{len(self.judges)}; fit it to these"
            )

    @property
    def name(self) -> str:
        """All judges, and what is made of them."""
        fitted = "" if self.fitted is None else f" {mix(repr(self.fitted)):x}"
        return f"{self.aggregate} of " + "; ".join(judge.name for judge in self.judges) + fitted

    @property
    def want(self) -> frozenset[str]:
        """All judges' extras."""
        return frozenset[str]().union(*(judge.want for judge in self.judges))

    def calls(self, size: int) -> int:
        """All judges' calls."""
        return sum(judge.calls(size) for judge in self.judges)

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Ask every judge, with chance of its own, and aggregate."""
        said = [
            fitting(judge, questions, await judge(hand, questions, np.random.default_rng(int(rng.integers(1 << 62)))))
            for judge in self.judges
        ]
        sizes = [len(question) for question in questions]
        rows = np.asarray([
            [x for opinion, size in zip(row, sizes, strict=True) for x in (opinion or [float("nan")] * size)]
            for row in said
        ])  # fmt: skip
        numbers = iter(self.fitted(rows.T) if self.fitted is not None else aggregated(rows, self.aggregate))
        broken = [all(row[q] is None for row in said) for q in range(len(questions))]
        out = [[float(next(numbers)) for _ in range(size)] for size in sizes]
        return [None if broken[q] else opinion for q, opinion in enumerate(out)]


def aggregated(rows: Floats, how: Aggregate) -> Floats:
    """One number a column from the judges' rows; NaN where nobody said one."""
    known = ~np.isnan(rows)
    nobody = ~known.any(axis=0)
    votes = np.where(known, (rows >= 0.5).astype(np.float64), np.nan)
    if how == "reliability":
        out = dawid_skene(votes)
    else:
        of = {"mean": (rows, np.nanmean), "median": (rows, np.nanmedian), "majority": (votes, np.nanmean)}[how]
        out = np.full(rows.shape[1], np.nan)
        out[~nobody] = of[1](of[0][:, ~nobody], axis=0)
    out[nobody] = np.nan
    return out


def dawid_skene(votes: Floats, steps: int = 100) -> Floats:
    """Probability that each column is true, from 0/1 votes of judges with unknown hit and false-alarm rates (EM).

    NaN = the judge did not vote. Rates are pulled to the mean by one vote of each kind (Beta(2, 2), as a prior).
    """
    known = ~np.isnan(votes)
    said = np.where(known, votes, 0.0)
    truth = np.where(known.any(0), said.sum(0) / np.maximum(known.sum(0), 1), 0.5)
    for _ in range(steps):
        hit = (1 + said @ truth) / (2 + known @ truth)
        alarm = (1 + said @ (1 - truth)) / (2 + known @ (1 - truth))
        share = np.clip(truth.mean(), 1e-3, 1 - 1e-3)
        yes, no = np.log(hit)[:, None] - np.log(alarm)[:, None], np.log(1 - hit)[:, None] - np.log(1 - alarm)[:, None]
        logit = np.log(share / (1 - share)) + (known * (said * yes + (1 - said) * no)).sum(0)
        new = 1 / (1 + np.exp(-np.clip(logit, -500, 500)))
        if np.abs(new - truth).max() < 1e-9:
            break
        truth = new
    return truth
