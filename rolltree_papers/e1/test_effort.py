from __future__ import annotations

import pytest

from rolltree.filter.shaping import RewardError
from rolltree.testing.forests import flat
from rolltree_papers.e1 import WithinEffort


def rewards(outcomes, lengths, effort, **knobs):
    tree = flat(outcomes, lengths)
    tree.root.scores["effort"] = effort
    for _ in range(2):
        WithinEffort(**knobs)(tree, 1024)
    assert [leaf.scores["outcome"] for leaf in tree.leaves()] == outcomes
    return [leaf.scores["reward"] for leaf in tree.leaves()]


@pytest.mark.parametrize(
    ("effort", "over", "counted"),
    [(1.0, "all", [1, 1, 0, 0]), (0.4, "all", [1, 0, 0, 0]), (1.0, "correct", [1, 1, 0, 0]),
     (1.6, "all", [1, 1, 1, 0]), (1.6, "correct", [1, 1, 1, 0])],
)  # fmt: skip
def test_a_right_answer_counts_up_to_the_effort_times_the_mean(effort, over, counted):
    assert rewards([1, 1, 1, 0], [2, 4, 6, 8], effort, over=over) == counted


def test_wrong_ones_loosen_the_mean_unless_right_ones_alone_count():
    assert rewards([1, 1, 0], [2, 4, 30], 1.0) == [1, 1, 0]
    assert rewards([1, 1, 0], [2, 4, 30], 1.0, over="correct") == [1, 0, 0]


def test_the_floor_keeps_the_mean_from_shrinking_to_nothing():
    assert rewards([1, 1], [2, 4], 1.0, floor=10.0) == [1, 1]


def test_a_tree_that_says_no_effort_is_refused_with_the_way_out():
    with pytest.raises(RewardError, match="says no effort; take a control"):
        WithinEffort()(flat([1, 0], [2, 3]), 1024)
