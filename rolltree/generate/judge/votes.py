"""Votes: a judge read several times, in several orders, each vote with chance of its own.

A verdict that does not survive swapping says nothing about the entries, so it is an abstention (`swapped`). Reading
every order and taking the mean removes what the place adds exactly (`all`; arXiv 2306.07951 does it for answers of
surveys).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from math import factorial
from typing import TYPE_CHECKING, Literal

import numpy as np

from rolltree.generate.judge.protocol import Judge, JudgeError, Opinion, Question, fitting

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand

Order = Literal["given", "shuffled", "swapped", "all"]


@dataclass(frozen=True, slots=True)
class Votes:
    """The judge's votes on each question: shares of votes won ("wins"), or the mean of what was said ("mean")."""

    judge: Judge
    votes: int = 1
    order: Order = "swapped"
    """In which order a vote reads: as given; shuffled; there and back again, where both must prefer the same entry; or
    all orders, of which the mean counts (`most` random ones where there are more)."""
    count: Literal["wins", "mean"] = "wins"
    seeds: Literal["own", "shared"] = "own"
    """"shared" is the control: votes that draw the same are one vote."""
    most: int = 24

    def __post_init__(self) -> None:
        if self.votes < 1 or self.most < 1:
            raise JudgeError(f"votes={self.votes} and most={self.most} ask nothing; give at least 1 of each")
        if self.order not in ("given", "shuffled", "swapped", "all"):
            raise JudgeError(f"order={self.order!r} is none of given, shuffled, swapped, all")

    @property
    def name(self) -> str:
        """The judge's, and how it votes."""
        return f"{self.votes} {self.count} {self.order} of {self.judge.name}"

    @property
    def want(self) -> frozenset[str]:
        """The judge's."""
        return self.judge.want

    def calls(self, size: int) -> int:
        """The judge's, for every reading."""
        return self.votes * self._readings(size) * self.judge.calls(size)

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Vote on every question; all votes are under way at once."""
        base = int(rng.integers(1 << 62))
        streams = [np.random.default_rng([base, 0 if self.seeds == "shared" else v]) for v in range(self.votes)]
        if hand is None:
            cast = [await self._vote(hand, questions, stream) for stream in streams]
        else:
            cast = await asyncio.gather(*(self._vote(hand, questions, stream) for stream in streams))
        return [self._counted([vote[q] for vote in cast]) for q in range(len(questions))]

    def _readings(self, size: int) -> int:
        if self.order == "all":
            return min(factorial(size), self.most)
        return 2 if self.order == "swapped" and size > 1 else 1

    def _orders(self, size: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
        given = tuple(range(size))
        match self.order:
            case "given":
                return [given]
            case "shuffled":
                return [tuple(int(i) for i in rng.permutation(size))]
            case "swapped":
                return [given, given[::-1]] if size > 1 else [given]
            case "all":
                if factorial(size) <= self.most:
                    return list(permutations(given))
                return [tuple(int(i) for i in rng.permutation(size)) for _ in range(self.most)]

    async def _vote(self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator) -> list[Opinion]:
        """One vote on each question: numbers by entry; NaN for an abstention, None where no reading was answered."""
        orders = [self._orders(len(question), rng) for question in questions]
        asked = [[question[i] for i in order] for question, some in zip(questions, orders, strict=True)
                 for order in some]  # fmt: skip
        said = iter(fitting(self.judge, asked, await self.judge(hand, asked, rng)))
        out: list[Opinion] = []
        for some in orders:
            read = [(order, opinion) for order in some if (opinion := next(said)) is not None]
            out.append(self._one([_in_place(order, opinion) for order, opinion in read], len(some)))
        return out

    def _one(self, read: list[np.ndarray], wanted: int) -> Opinion:
        if len(read) < wanted:
            return None
        if self.count == "mean":
            return list(np.mean(read, axis=0))
        rows = [np.mean(read, axis=0)] if self.order == "all" else read
        winners = {winner(row) for row in rows}
        chosen = winners.pop() if len(winners) == 1 else None
        if chosen is None:
            return [float("nan")] * len(read[0])
        return [float(i == chosen) for i in range(len(read[0]))]

    def _counted(self, votes: Sequence[Opinion]) -> Opinion:
        cast = np.asarray([vote for vote in votes if vote is not None], np.float64)
        if not len(cast):
            return None
        valid = ~np.isnan(cast)
        with np.errstate(invalid="ignore"):
            return list(np.where(valid, cast, 0.0).sum(0) / valid.sum(0))


def winner(numbers: Sequence[float] | np.ndarray) -> int | None:
    """The entry with the largest number; None where two share it or one has none."""
    row = np.asarray(numbers, np.float64)
    if np.isnan(row).any():
        return None
    best = np.flatnonzero(row >= row.max() - 1e-12)
    return int(best[0]) if len(best) == 1 else None


def _in_place(order: Sequence[int], opinion: Sequence[float]) -> np.ndarray:
    """Numbers by entry instead of by place."""
    out = np.empty(len(order))
    out[list(order)] = opinion
    return out
