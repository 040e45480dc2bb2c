"""A tournament: groups of entries, one winner of each by votes, until one or a few are left (RTV, arXiv 2604.16529)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from rolltree.generate.judge.protocol import Entry, Judge, JudgeError, Opinion

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand


@dataclass(frozen=True, slots=True)
class Match:
    """One group of a round: who was in it, the shares of votes, who went on, and why."""

    members: tuple[int, ...]
    shares: tuple[float, ...]
    """Empty where nothing was asked, or nothing answered."""
    winner: int
    by: Literal["votes", "chance", "bye"]


@dataclass(frozen=True, slots=True)
class Bracket:
    """Who is left, and how it came to that."""

    survivors: tuple[int, ...]
    rounds: tuple[tuple[Match, ...], ...]

    @property
    def by_chance(self) -> int:
        """Matches that no vote decided: ties, abstentions, what broke."""
        return sum(match.by == "chance" for round in self.rounds for match in round)

    @property
    def matches(self) -> int:
        """Matches that were asked about."""
        return sum(match.by != "bye" for round in self.rounds for match in round)


async def tournament(
    hand: Hand | None, judge: Judge, field: Sequence[Entry], rng: np.random.Generator, *, group: int = 2,
    stop_at: int = 1,
) -> Bracket:  # fmt: skip
    """Shuffle, part into groups, let the judge name one winner of each, and repeat until `stop_at` are left.

    A group of one passes (bye, reconstructed). A tie is broken by chance among the tied (reconstructed), and so is a
    match that nothing answered. The last round plays only as many groups as must go.
    """
    if group < 2 or stop_at < 1:
        raise JudgeError(f"a tournament of group={group} to stop_at={stop_at} never ends; give at least 2 and 1")
    left, rounds = list(range(len(field))), list[tuple[Match, ...]]()
    while len(left) > stop_at:
        left = [left[i] for i in rng.permutation(len(left))]
        groups, over, at = list[tuple[int, ...]](), len(left) - stop_at, 0
        while at < len(left):
            size = min(group, over + 1, len(left) - at)
            groups.append(tuple(left[at : at + size]))
            over, at = over - (size - 1), at + size
        asked: list[tuple[int, ...]] = [members for members in groups if len(members) > 1]
        questions = [[field[i] for i in members] for members in asked]
        said = dict(zip(asked, await _asked(hand, judge, questions, len(rounds) + 1, rng), strict=True))
        played = tuple(_match(members, said.get(members), rng) for members in groups)
        rounds.append(played)
        left = [match.winner for match in played]
        if hand is not None:
            hand.event("select", None, f"round {len(rounds)} of the tournament", left=len(left),
                       chance=sum(match.by == "chance" for match in played),
                       matches=[[list(m.members), [round(s, 3) for s in m.shares], m.winner] for m in played],
                       )  # fmt: skip
    return Bracket(tuple(left), tuple(rounds))


async def _asked(
    hand: Hand | None, judge: Judge, questions: Sequence[Sequence[Entry]], number: int, rng: np.random.Generator
) -> Sequence[Opinion]:
    stream = np.random.default_rng(int(rng.integers(1 << 62)))
    if hand is None:
        return await judge(None, questions, stream)
    return await hand.judge(judge, questions, about=f"round {number} of the tournament", rng=stream)


def _match(members: tuple[int, ...], opinion: Opinion, rng: np.random.Generator) -> Match:
    if len(members) == 1:
        return Match(members, (), members[0], "bye")
    shares = np.full(len(members), np.nan) if opinion is None else np.asarray(opinion, np.float64)
    if np.isnan(shares).all():
        return Match(members, (), members[int(rng.integers(len(members)))], "chance")
    best = np.flatnonzero(shares >= np.nanmax(shares) - 1e-12)
    chosen = int(best[0]) if len(best) == 1 else int(rng.choice(best))
    return Match(members, tuple(float(s) for s in shares), members[chosen], "votes" if len(best) == 1 else "chance")
