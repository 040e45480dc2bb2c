"""Verdicts say what the interval says, with the error rates they promise."""

from pathlib import Path

import numpy as np
import pytest

from rolltree.compare.stats import Interval, describe, judge, paired_interval, rule_table
from rolltree.compare.stats.paired import StatsError
from rolltree.compare.stats.verdict import GAIN


def around(low, high, n=5):
    return Interval((low + high) / 2, low, high, 0.95, "paired t", n)


@pytest.mark.parametrize(
    ("low", "high", "least", "outcome"),
    [
        (0.01, 0.09, 0.0, "holds"),
        (0.01, 0.09, 0.05, "holds"),
        (0.01, 0.04, 0.05, "claim excluded"),
        (-0.02, 0.03, 0.05, "no effect above x"),
        (-0.02, 0.08, 0.05, "no difference found"),
        (-0.02, 0.08, 0.0, "no difference found"),
        (-0.09, -0.01, 0.0, "worse"),
        (-0.09, -0.01, 0.05, "worse"),
    ],
)
def test_outcomes_of_a_claimed_gain(low, high, least, outcome):
    assert judge(around(low, high), least=least) == outcome
    assert judge(around(-high, -low), direction="lower", least=least) == outcome


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (-0.01, 0.01, "holds"),
        (0.001, 0.01, "holds"),
        (-0.01, 0.03, "no difference found"),
        (0.01, 0.03, "no difference found"),
        (0.021, 0.03, "claim excluded"),
    ],
)
def test_outcomes_of_a_claimed_equality(low, high, outcome):
    assert judge(around(low, high), direction="equal", least=0.02) == outcome


@pytest.mark.parametrize(
    ("truth", "least", "direction", "wrong", "rate"),
    [
        (0.0, 0.5, "higher", "holds", 0.025),
        (0.5, 0.5, "higher", "falls", 0.025),
        (-0.5, 0.5, "lower", "falls", 0.025),
        (0.5, 0.5, "equal", "holds", 0.025),
        (0.5, 0.5, "equal", "falls", 0.025),
    ],
)
def test_error_rates_are_as_stated(truth, least, direction, wrong, rate):
    rng, trials = np.random.default_rng(11), 2000
    spread = 0.15 if direction == "equal" else 0.6
    made = [
        judge(paired_interval(truth + spread * rng.standard_normal(5), np.zeros(5)), direction=direction, least=least)
        for _ in range(trials)
    ]
    fallen = ("worse", "claim excluded", "no effect above x")
    count = sum(m in fallen for m in made) if wrong == "falls" else made.count(wrong)
    assert count / trials < rate + 3.5 * (rate * (1 - rate) / trials) ** 0.5


def test_a_real_effect_is_usually_found():
    rng = np.random.default_rng(12)
    found = [judge(paired_interval(0.5 + 0.3 * rng.standard_normal(8), np.zeros(8)), least=0.3) for _ in range(300)]
    assert found.count("holds") > 250


def test_words_name_interval_level_and_seeds():
    said = describe(around(0.012, 0.07), subject="treepo", baseline="grpo", metric="pass@1", unit="points").words
    assert said == (
        "holds: treepo is better than grpo, +4.1 points in pass@1 (95 % paired t interval +1.2 points to +7.0 points "
        "over 5 seeds)"
    )


@pytest.mark.parametrize(
    ("low", "high", "least", "says"),
    [
        (-0.02, 0.08, 0.05, "neither shown nor excluded"),
        (-0.02, 0.03, 0.05, "an effect of 0.05 of a over b is excluded"),
        (0.01, 0.04, 0.05, "by less than the claimed 0.05"),
        (-0.09, -0.01, 0.05, "worse than"),
        (0.01, 0.07, 0.05, "the estimate is below the claimed 0.05"),
    ],
)
def test_words_say_why(low, high, least, says):
    assert says in describe(around(low, high), subject="a", baseline="b", metric="m", least=least).words


def test_one_seed_gives_no_interval_and_no_verdict():
    said = describe(
        Interval(0.1, -np.inf, np.inf, 0.95, "paired t", 1), subject="a", baseline="b", metric="m"
    )  # fmt: skip
    assert said.outcome == "no difference found"
    assert "no interval" in said.words


def test_impossible_claims_are_named():
    with pytest.raises(StatsError, match="margin above 0"):
        judge(around(0, 1), direction="equal")
    with pytest.raises(StatsError, match="a size and cannot be"):
        judge(around(0, 1), least=-0.1)


def test_pages_print_the_rules_that_judge_applies():
    """Each printed sentence is of the rule that gives the outcome; the table is made from the rules themselves."""
    told = dict(line.strip("| \n").split(" | ") for line in rule_table().splitlines()[2:])
    assert set(told) == {rule.outcome for rule in GAIN}
    assert told["worse"] == "lies below 0"
    for page in ("docs/howto/compare.md", "docs/measured/evidence.md"):
        text = (Path(__file__).parents[3] / page).read_text()
        assert all(f"| {rule.outcome} | {rule.when} |" in text for rule in GAIN), page
