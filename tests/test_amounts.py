"""Amounts as people write them, the same at every option that counts tokens."""

import json

import pytest

from rolltree.cli import main
from rolltree.knobs.amounts import AmountError, amount, whole


@pytest.mark.parametrize(("text", "value"), [("300k", 3e5), ("1.5M", 1.5e6), ("20000", 2e4), (50, 50.0), ("2e3", 2e3)])
def test_amounts(text, value):
    assert amount(text) == value


@pytest.mark.parametrize("text", ["", "k", "-3", "0", "3x", "three", "1e999"])
def test_bad_amounts(text):
    with pytest.raises(AmountError, match=r"cannot read the budget .*300k"):
        amount(text)


@pytest.mark.parametrize(("text", "count"), [("96k", 96_000), ("96000", 96_000), ("1.5K", 1500), ("0", 0), ("-1", -1)])
def test_counts_of_tokens(text, count):
    assert whole(text) == count


def test_a_part_of_a_token_is_none():
    with pytest.raises(AmountError, match=r"'1\.5' is 1\.5 tokens, no whole number"):
        whole("1.5")


@pytest.mark.parametrize(
    "words",
    [
        "rollout grpo --decoded many",
        "rollout grpo --max-tokens many",
        "train grpo --decoded many",
        "train grpo --max-tokens many",
        "train grpo --token-budget many",
        "solve mcts --item-tokens many",
        "solve mcts --run-tokens many",
        "solve mcts --max-tokens many",
        "compare grpo rloo --max-tokens many",
        "serve --session-tokens many",
    ],
)
def test_an_option_that_counts_tokens_says_how_they_are_written(words, capsys):
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    assert "cannot read the number of tokens 'many': write a number above 0, as in 300k, 1.5M or 20000" in said


def test_a_bound_in_short_binds(capsys):
    asked = ["rollout", "grpo", "--task", "countdown", "--items", "1", "--group", "4", "--json"]
    assert main([*asked, "--decoded", "0.02k"]) == 0
    assert 0 < json.loads(capsys.readouterr().out)["decoded"] <= 20
