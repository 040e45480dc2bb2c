"""Votes and tournaments held against exact answers: order, chance, ties, byes, abstentions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
import pytest

from rolltree.generate.hand import Hand
from rolltree.generate.judge.measured import MeasuredJudge
from rolltree.generate.judge.protocol import Entry, Judge, JudgeError, Opinion, Question, at_once
from rolltree.generate.judge.tournament import Bracket, tournament
from rolltree.generate.judge.votes import Votes, winner
from rolltree.testing.forests import flat

P = 0.3


def field(rewards: Sequence[float]) -> list[Entry]:
    tree = flat(list(rewards))
    return [Entry(tree, leaf) for leaf in tree.leaves()]


def ask(judge: Judge, questions: Sequence[Question], seed: int = 0) -> Sequence[Opinion]:
    return at_once(judge(None, questions, np.random.default_rng(seed)), judge.name)


def play(judge: Judge, rewards: Sequence[float], seed: int = 0, group: int = 2, stop_at: int = 1) -> Bracket:
    rng = np.random.default_rng([7, seed])
    return at_once(tournament(None, judge, field(rewards), rng, group=group, stop_at=stop_at), "a tournament")


def exact(q: float, votes: int, rounds: int = 4) -> float:
    """Chance that the winner of 2^rounds entries is right: p' = p² + 2p(1−p)·Q(q, V), a coin on ties."""
    wins = [comb(votes, k) * q**k * (1 - q) ** (votes - k) for k in range(votes + 1)]
    majority = sum(w * (1.0 if 2 * k > votes else 0.5 if 2 * k == votes else 0.0) for k, w in enumerate(wins))
    p = P
    for _ in range(rounds):
        p = p**2 + 2 * p * (1 - p) * majority
    return p


def won(q: float, votes: int, *, seeds: str = "own", runs: int = 600) -> float:
    judge = Votes(MeasuredJudge(accuracy=q), votes, "shuffled", seeds=seeds)  # type: ignore[arg-type]
    right = 0
    for seed in range(runs):
        rewards = [float(x < P) for x in np.random.default_rng([1, seed]).random(16)]
        (left,) = play(judge, rewards, seed).survivors
        right += int(rewards[left])
    return right / runs


@pytest.mark.parametrize(("q", "votes", "said"), [(0.65, 1, 0.581), (0.65, 8, 0.841), (0.55, 1, 0.389), (0.55, 8, 0.5)])
def test_a_tournament_of_sixteen_is_won_as_often_as_the_oracle_says(q: float, votes: int, said: float) -> None:
    assert exact(q, votes) == pytest.approx(said, abs=6e-4)
    assert won(q, votes) == pytest.approx(said, abs=4 * np.sqrt(said * (1 - said) / 600))


def test_votes_that_share_a_seed_are_one_vote() -> None:
    shared = won(0.65, 8, seeds="shared", runs=300)
    assert shared == pytest.approx(exact(0.65, 1), abs=4 * 0.0285)
    assert shared < exact(0.65, 8) - 0.1
    judge = Votes(MeasuredJudge(accuracy=0.65), 8, "shuffled", seeds="shared")
    assert all(opinion is not None and set(opinion) == {0.0, 1.0} for opinion in ask(judge, [field([1, 0])] * 40))


def test_a_verdict_that_does_not_survive_swapping_is_an_abstention() -> None:
    (equal, close, clear) = ask(Votes(MeasuredJudge(bias=0.5)), [field([1, 1]), field([1.2, 1]), field([2, 1])])
    assert np.isnan(equal or ()).all()
    assert np.isnan(close or ()).all()
    assert clear == [1.0, 0.0]
    assert Votes(MeasuredJudge(bias=0.5), 3).calls(2) == 6
    assert ask(Votes(MeasuredJudge(bias=0.5), order="given"), [field([1.2, 1.0]), field([1.0, 1.2])]) == [
        [1, 0],
        [1, 0],
    ]


def test_the_mean_over_all_orders_does_not_depend_on_the_order_that_is_given() -> None:
    judge = Votes(MeasuredJudge(bias=0.7), order="all", count="mean")
    entries = field([0.1, 0.9, 0.4])
    (said,) = ask(judge, [entries])
    assert said == pytest.approx([x + 0.7 / 3 for x in (0.1, 0.9, 0.4)])
    for order in ((2, 0, 1), (1, 0, 2)):
        (again,) = ask(judge, [[entries[i] for i in order]])
        assert said is not None
        assert again == pytest.approx([said[i] for i in order])
    assert judge.calls(3) == 6


@dataclass(frozen=True)
class Silent:
    """Answers some questions, abstains from some, leaves some unanswered."""

    said: tuple[Opinion, ...]
    name: str = "silent"
    want: frozenset[str] = frozenset()

    def calls(self, size: int) -> int:
        return 1

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        return [self.said[i % len(self.said)] for i in range(len(questions))]


def test_what_nothing_decides_is_drawn_and_counted_and_broken_is_not_abstained() -> None:
    nan = float("nan")
    assert ask(Votes(Silent((None,)), 2), [field([0, 1])]) == [None]
    (mixed,) = ask(Votes(Silent(((nan, nan),)), 2), [field([0, 1])])
    assert np.isnan(mixed or ()).all()
    first = [play(Silent(((nan, nan),)), [0, 1], seed).survivors[0] for seed in range(60)]
    assert 15 < sum(first) < 45
    bracket = play(Silent((None,)), [0.0] * 4)
    assert (bracket.by_chance, bracket.matches) == (3, 3)


@pytest.mark.parametrize(
    ("entries", "group", "stop_at", "sizes"),
    [
        (5, 2, 1, [(2, 2, 1), (2, 1), (2,)]),
        (16, 2, 3, [(2,) * 8, (2,) * 4, (2, 1, 1)]),
        (7, 4, 2, [(4, 3)]),
        (3, 2, 3, []),
    ],
)
def test_byes_and_a_last_round_that_leaves_as_many_as_asked(
    entries: int, group: int, stop_at: int, sizes: list[tuple[int, ...]]
) -> None:
    rewards = [float(i) for i in range(entries)]
    bracket = play(MeasuredJudge(), rewards, group=group, stop_at=stop_at)
    assert [tuple(len(m.members) for m in played) for played in bracket.rounds] == sizes
    assert len(bracket.survivors) == stop_at
    assert entries - 1 in bracket.survivors, "the best never loses to an exact judge"
    assert all((m.by == "bye") == (len(m.members) == 1) for played in bracket.rounds for m in played)


def test_ties_are_broken_among_the_tied_alone() -> None:
    for seed in range(40):
        assert play(MeasuredJudge(), [0, 1, 1], seed, group=3).survivors[0] in (1, 2)
    assert [winner(row) for row in ([0.2, 0.5], [0.5, 0.5], [0.5, float("nan")])] == [1, None, None]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Votes(MeasuredJudge(), 0), "votes=0"),
        (lambda: Votes(MeasuredJudge(), order="sideways"), "order='sideways'"),  # type: ignore[arg-type]
        (lambda: play(MeasuredJudge(), [0, 1], group=1), "group=1"),
        (lambda: ask(Votes(Silent(((1.0,),))), [field([0, 1])]), "said 1 numbers about 2 entries"),
    ],
)
def test_what_makes_no_sense_is_said(make: Callable[[], object], said: str) -> None:
    with pytest.raises(JudgeError, match=said):
        make()
