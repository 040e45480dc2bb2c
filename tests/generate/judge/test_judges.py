"""Panels, criteria, caches, readers of verdicts, first errors, calibration, and judges as part of a rollout."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rolltree.control.ledger import Budget, Limits
from rolltree.credit.registry import load_credit
from rolltree.generate.hand import Hand
from rolltree.generate.independent import Independent
from rolltree.generate.judge.cached import Cached
from rolltree.generate.judge.calibration import auc, brier, compared, correlation
from rolltree.generate.judge.engine_judges import Likelihood
from rolltree.generate.judge.measured import MeasuredJudge
from rolltree.generate.judge.panel import Fitted, Panel, aggregated, dawid_skene, fit
from rolltree.generate.judge.protocol import Entry, JudgeError, Opinion, Question, at_once, number_in, word_in
from rolltree.generate.judge.votes import Votes
from rolltree.generate.judged import JUDGED, Judged, JudgedAgainst, graded
from rolltree.generate.runner import grow
from rolltree.recipe.registry import load_recipe
from rolltree.testing.forests import flat
from rolltree.testing.tiny import SpellTask, tiny_engine
from rolltree.tree import Forest
from rolltree.tree.table import table


@dataclass(frozen=True)
class Says:
    """Says what a list says, in turn, and counts how often it was asked."""

    said: tuple[Opinion, ...]
    asked: list[int] = field(default_factory=list[int])
    name: str = "says"
    want: frozenset[str] = frozenset()

    def calls(self, size: int) -> int:
        return 1

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        self.asked.append(len(questions))
        return [self.said[i % len(self.said)] for i in range(len(questions))]


def pair(a: str = "x", b: str = "y") -> list[Entry]:
    tree = flat([0.0, 1.0])
    return [Entry(tree, leaf, text) for leaf, text in zip(tree.leaves(), (a, b), strict=True)]


def ask(judge: Any, questions: Sequence[Question]) -> Sequence[Opinion]:
    return at_once(judge(None, questions, np.random.default_rng(0)), "a judge")


# -- several judges ------------------------------------------------------------------------------------------------


def panel_votes(rng: np.random.Generator, good: int, spammers: int, n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    truth = rng.random(n) < 0.5
    votes = [np.where(rng.random(n) < 0.75, truth, ~truth) for _ in range(good)]
    votes += [np.ones(n, bool) if i % 2 else rng.random(n) < 0.5 for i in range(spammers)]
    return np.asarray(votes, np.float64), truth


def test_reliabilities_help_where_there_are_spammers_and_cost_little_where_there_are_none() -> None:
    gains: dict[int, float] = {}
    for spammers in (0, 6):
        right = {"majority": 0.0, "reliability": 0.0}
        for seed in range(10):
            votes, truth = panel_votes(np.random.default_rng(seed), 5, spammers)
            for how in right:
                right[how] += float(((aggregated(votes, how) > 0.5) == truth).mean()) / 10  # type: ignore[arg-type]
        gains[spammers] = right["reliability"] - right["majority"]
    assert gains[6] > 0.04
    assert abs(gains[0]) < 0.015


def test_a_judge_that_always_says_the_opposite_is_as_good_as_a_right_one() -> None:
    rng = np.random.default_rng(3)
    truth = rng.random(400) < 0.5
    votes = np.asarray([truth, np.where(rng.random(400) < 0.8, truth, ~truth), np.where(rng.random(400) < 0.8, truth,
                        ~truth), ~truth], np.float64)  # fmt: skip
    assert ((dawid_skene(votes) > 0.5) == truth).mean() > 0.97


def test_a_fitted_aggregator_beats_the_mean_and_the_best_single_criterion() -> None:
    rng, rates = np.random.default_rng(0), (0.8, 0.75, 0.65, 0.5, 0.25)
    truth = rng.random(2000) < 0.4
    numbers = np.column_stack([np.where(rng.random(2000) < q, truth, ~truth) for q in rates]).astype(np.float64)
    made = fit(numbers[:1000], list(truth[:1000]))
    said = made(numbers[1000:]) > 0.5
    accuracy = (said == truth[1000:]).mean()
    assert accuracy > max(((numbers[1000:, i] > 0.5) == truth[1000:]).mean() for i in range(5)) + 0.02
    assert accuracy > ((numbers[1000:].mean(1) > 0.5) == truth[1000:]).mean() + 0.05
    assert made.weights[4] < 0 < made.weights[0]


def test_a_panel_leaves_out_who_abstains_and_is_silent_where_all_are() -> None:
    nan = float("nan")
    yes, none, broken = Says(((1.0, 0.0),)), Says(((nan, nan),)), Says((None,))
    assert ask(Panel((yes, none, broken)), [pair()]) == [[1.0, 0.0]]
    assert np.isnan(ask(Panel((none, broken)), [pair()])[0] or ()).all()
    assert ask(Panel((broken, broken)), [pair()]) == [None]
    assert ask(Panel((yes, yes), fitted=Fitted((10.0, 0.0), -5.0)), [pair()])[0] == pytest.approx([1, 0], abs=0.01)
    assert Panel((yes, Votes(yes, 3))).calls(2) == 7
    with pytest.raises(JudgeError, match="fitted to 1 judges and is given 2"):
        Panel((yes, none), fitted=Fitted((1.0,)))


# -- reading and keeping verdicts ----------------------------------------------------------------------------------


def test_a_verdict_that_is_known_is_not_asked_again_unless_order_text_or_version_differ(tmp_path: Path) -> None:
    file = tmp_path / "verdicts.jsonl"
    inner = Says(((1.0, float("nan")),))
    judge = Cached(inner, "1", file)
    first = ask(judge, [pair(), pair()])
    assert np.isnan(first[1][1]) if first[1] else False
    ask(judge, [pair()])
    assert inner.asked == [1], "asked once, for one of two equal questions"
    ask(judge, [pair()[::-1], pair("x", "z")])
    ask(Cached(inner, "2", file), [pair()])
    assert inner.asked == [1, 2, 1]
    assert ask(Cached(Says((None,)), "1", file), [pair()])[0] is not None
    assert ask(Cached(Says((None,)), "3"), [pair()]) == [None]
    file.write_text("nonsense\n")
    with pytest.raises(JudgeError, match="line 1, is no verdict"):
        Cached(inner, "1", file)


@pytest.mark.parametrize(
    ("text", "want"),
    [("7", 0.7), ("I give 7 of it", 0.7), ("7 or 8", None), ("12", None), ("none", None), ("7.5", 0.75)],
)
def test_a_grade_is_one_number_on_the_scale_or_nothing(text: str, want: float | None) -> None:
    said = number_in(text, 0, 10)
    assert np.isnan(said) if want is None else said == pytest.approx(want)


@pytest.mark.parametrize(
    ("text", "want"), [("A", 0), ("the better is B.", 1), ("A or B", None), ("BAD", None), ("Abel", None), ("", None)]
)
def test_a_choice_is_one_of_the_words_as_a_word_of_its_own(text: str, want: int | None) -> None:
    assert word_in(text, ("A", "B")) == want


# -- calibration ---------------------------------------------------------------------------------------------------


def test_a_planted_bias_for_the_first_place_is_found_and_so_is_what_swapping_leaves() -> None:
    rng = np.random.default_rng(0)
    questions = [pair() for _ in range(400)]
    for bias, noise in ((0.0, 0.7), (2.0, 0.7)):
        judge = MeasuredJudge(noise=noise, bias=bias)
        there = at_once(judge(None, questions, rng), "there")
        back = at_once(judge(None, [q[::-1] for q in questions], rng), "back")
        found = compared(there, back, [1] * len(questions))
        assert (found.questions, found.failed) == (400, 0)
        if bias:
            assert found.first > 0.8
            assert found.abstained > 0.6
        else:
            assert found.first == pytest.approx(0.5, abs=0.06)
        assert found.accuracy > 0.85
    assert compared([None, [1, 0]], [[1, 0], [1, 0]], [0, 0]).failed == 1


def test_what_grades_and_votes_say_of_themselves() -> None:
    assert auc([0.9, 0.4, 0.4], [True, False, True]) == 0.75
    assert np.isnan(auc([0.5], [True]))
    assert brier([1.0, 0.5], [True, False]) == 0.125
    votes = np.random.default_rng(0).random((4, 500))
    assert abs(correlation(votes.tolist())) < 0.1
    assert correlation([votes[0].tolist()] * 4) == pytest.approx(1.0)


# -- as part of a rollout ------------------------------------------------------------------------------------------


def grown(strategy: Any, n: int = 3) -> Forest:
    task = SpellTask()
    return asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("train"), n), seed=2))


def test_only_selected_leaves_are_graded_and_what_broke_failed() -> None:
    forest = grown(Judged(Independent(6), Likelihood(), "right"))
    leaves = [leaf for tree in forest if "/" not in tree.id for leaf in tree.leaves()]
    assert {JUDGED in leaf.scores for leaf in leaves if leaf.scores["reward"] == 1} == {True}
    assert not any(JUDGED in leaf.scores for leaf in leaves if leaf.scores["reward"] == 0)
    assert all(0 < grade < 1 and right for grade, right in graded(leaves))
    broken = grown(Judged(Independent(4), Says((None, (0.5,)))))
    states = [(leaf.status, JUDGED in leaf.scores) for tree in broken for leaf in tree.leaves()]
    assert states == [("failed", False), ("done", True)] * 6
    assert not any("reward" in leaf.scores for t in broken for leaf in t.leaves() if leaf.status == "failed")
    task = SpellTask()
    items, budget = islice(task.items("train"), 1), Budget(Limits(judge_calls=2))
    poor = asyncio.run(grow(Judged(Independent(3), Likelihood()), tiny_engine(), task, items, budget=budget))
    unpaid = [leaf.usage for tree in poor if "/" not in tree.id for leaf in tree.leaves() if JUDGED not in leaf.scores]
    assert unpaid == ["dropped: the budget ended before it was judged"]
    silent = grown(Judged(Independent(2), Says(((float("nan"),), (0.5,)))))
    assert [leaf.usage for tree in silent for leaf in tree.leaves()] == ["dropped: the judge abstained", ""] * 3


def test_verdicts_against_one_of_the_tree_are_those_of_both_orders() -> None:
    forest = grown(JudgedAgainst(Independent(5), MeasuredJudge("reward")))
    for tree in forest:
        leaves = tree.leaves()
        (chosen,) = [leaf for leaf in leaves if leaf.scores["reference"]]
        for leaf in leaves:
            assert leaf.scores["versus"] == float(leaf.scores["reward"] > chosen.scores["reward"])
    asked = grown(JudgedAgainst(Independent(5), Likelihood()))
    assert load_credit("pairwise", skew=1.0)(table([t for t in asked if "/" not in t.id])).leaf is not None


@pytest.mark.papers("brpo", "fapo")
@pytest.mark.parametrize("name", ["fapo", "brpo"])
def test_recipes_take_a_frozen_copy_as_their_judge(name: str) -> None:
    parts = load_recipe(name, judge="likelihood").build()
    assert [(peer.model, peer.trained) for peer in parts.peers.values()] == [("", False)]
    assert list(parts.peers) == ["judge"]
    assert load_recipe(name, judge={"fapo": "verifier", "brpo": "measured"}[name]).build().peers == {}
