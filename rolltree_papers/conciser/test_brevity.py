from __future__ import annotations

import pytest

from rolltree.filter.shaping import RewardError
from rolltree.testing.forests import flat
from rolltree_papers.conciser import Brevity


def rewards(tree, **knobs):
    Brevity(**knobs)(tree, 1024)
    return [leaf.scores["reward"] for leaf in tree.leaves()]


def test_brevity_by_hand_and_what_the_verifier_said_stays():
    tree = flat([1, 1, 1], [2, 4, 6])
    assert rewards(tree, weight=0.5, most=10) == pytest.approx([1.4, 1.3, 1.2])
    assert [leaf.scores["outcome"] for leaf in tree.leaves()] == [1, 1, 1]
    assert rewards(tree, weight=0.5, most=10) == pytest.approx([1.4, 1.3, 1.2]), "twice is once"


@pytest.mark.parametrize("outcomes", [[1, 1, 0], [0, 0, 0]])
def test_a_group_that_is_not_solved_never_pays_for_brevity(outcomes):
    tree = flat(outcomes, [2, 4, 6])
    assert rewards(tree, weight=0.5, most=10) == outcomes


def test_a_rollout_that_failed_neither_pays_nor_stands_in_the_way():
    tree = flat([1, 1, 0], [2, 4, 6])
    failed = tree.leaves()[2]
    failed.status = "failed"
    assert rewards(tree, weight=0.5, most=10) == pytest.approx([1.4, 1.3, 0.0])


def test_a_length_that_no_answer_is_under_is_refused():
    with pytest.raises(RewardError, match="at least 1 token, got 0"):
        Brevity(most=0)
