from __future__ import annotations

from itertools import combinations
from math import comb
from pathlib import Path

import pytest
from scipy.stats import binomtest

import rolltree
from rolltree.metrics.reward import wilson
from rolltree.recipe.registry import load_recipe
from rolltree.training.evaluate import pass_at, summary
from rolltree.tree import Forest
from tests.train.toy import KNOBS, Talk, tiny_policy


@pytest.mark.parametrize("samples", [1, 4, 6])
def test_pass_at_k_is_the_mean_over_all_subsets(samples: int) -> None:
    for solved in range(samples + 1):
        right = [i < solved for i in range(samples)]
        for k in range(1, samples + 1):
            mean = sum(any(s) for s in combinations(right, k)) / comb(samples, k)
            assert pass_at(solved, samples, k) == pytest.approx(mean)


@pytest.mark.parametrize(("solved", "items"), [(0, 12), (5, 12), (12, 12), (31, 64)])
def test_the_interval_is_wilsons(solved: int, items: int) -> None:
    expected = binomtest(solved, items).proportion_ci(method="wilson")
    mine = wilson(solved / items, items)
    assert (mine.low, mine.high) == pytest.approx((expected.low, expected.high))


def test_failed_rollouts_count_neither_as_right_nor_as_wrong() -> None:
    forest = Forest()
    for i, rewards in enumerate([[1.0, 0.0, None], [None, None, None], [1.0, 1.0, 0.5]]):
        tree = forest.plant(f"t{i}", [1])
        for reward in rewards:
            leaf = tree.extend(0, [2, 3], status="done" if reward is not None else "failed")
            if reward is not None:
                leaf.scores["reward"] = reward
                leaf.scores["form"] = 1 - reward
    told = summary(forest, 3)
    assert told["eval/items"] == 2
    assert told["eval/failed"] == 4
    assert told["eval/pass@1"] == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert told["eval/pass@3"] == 1.0
    assert told["eval/reward"] == pytest.approx(3.5 / 5)
    assert told["eval/part/form"] == pytest.approx(1.5 / 5)


@pytest.mark.papers("cleaner")
def test_held_out_items_are_answered_with_and_without_repairs(tmp_path: Path) -> None:
    """CLEANER's calls fail without a second try: the two ways of answering measure two things."""
    recipe = load_recipe("cleaner", group=2)
    knobs = {**KNOBS, "steps": 1, "eval_every": 1}
    told = rolltree.train(recipe, tiny_policy(), Talk(), out=tmp_path / "run", **knobs).last("eval")
    assert {"eval/pass@1", "repaired/eval/pass@1", "repaired/eval/length"} <= told.keys()
    assert told["eval/items"] == told["repaired/eval/items"] == KNOBS["eval_items"]
    plain = load_recipe("cleaner", group=2, evaluate_repaired=False)
    told = rolltree.train(plain, tiny_policy(), Talk(), out=tmp_path / "plain", **knobs).last("eval")
    assert not any(key.startswith("repaired/") for key in told)
