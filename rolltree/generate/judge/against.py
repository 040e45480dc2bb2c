"""Every entry of a group against one of them (BRPO), or against all others, read in both orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rolltree.generate.judge.protocol import Entry, Judge, Opinion, Question

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand


async def against(
    hand: Hand | None, judge: Judge, group: Sequence[Entry], chosen: int, votes: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """The share of readings that each entry won against the chosen one: `votes` in each of the two orders.

    An equal entry has not won; a reading that abstains counts half to either. NaN = no reading was answered. The chosen
    entry's own number is 0.
    """
    others = [i for i in range(len(group)) if i != chosen]
    won, count = np.zeros(len(group)), np.zeros(len(group))
    for first in (0, 1):
        pairs: list[Question] = [
            (group[i], group[chosen]) if first == 0 else (group[chosen], group[i]) for _ in range(votes) for i in others
        ]
        said = await _asked(hand, judge, pairs, rng)
        for at, opinion in enumerate(said):
            if opinion is not None:
                i, mine, its = others[at % len(others)], opinion[first], opinion[1 - first]
                won[i] += 0.5 if np.isnan(mine) or np.isnan(its) else float(mine > its)
                count[i] += 1
    share = np.divide(won, count, out=np.full(len(group), np.nan), where=count > 0)
    share[chosen] = 0.0
    return share


async def all_pairs(
    hand: Hand | None, judge: Judge, group: Sequence[Entry], rng: np.random.Generator
) -> NDArray[np.float64]:
    """The share of readings that each entry won against all others, every pair read in both orders; an equal one has
    half won. NaN = no reading of it was answered."""
    pairs = [(i, k) for i in range(len(group)) for k in range(len(group)) if i != k]
    won, count = np.zeros(len(group)), np.zeros(len(group))
    if pairs:
        said = await _asked(hand, judge, [(group[i], group[k]) for i, k in pairs], rng)
        for (i, k), opinion in zip(pairs, said, strict=True):
            if opinion is not None:
                mine, its = opinion
                share = 0.5 if np.isnan(mine) or np.isnan(its) or mine == its else float(mine > its)
                won[[i, k]] += share, 1 - share
                count[[i, k]] += 1
    return np.divide(won, count, out=np.full(len(group), np.nan), where=count > 0)


async def _asked(
    hand: Hand | None, judge: Judge, questions: Sequence[Question], rng: np.random.Generator
) -> Sequence[Opinion]:
    if hand is None:
        return await judge(None, questions, rng)
    return await hand.judge(judge, questions, about="pairs", rng=rng)
