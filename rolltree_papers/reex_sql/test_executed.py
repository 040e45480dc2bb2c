"""What `reex_sql` promises beside what all of its kind do."""

from __future__ import annotations

import pytest

from rolltree_papers.reex_sql import Executed, PartError
from tests.filter.sessions import session, shaped


def paid(results, shaper=None, **knobs):
    return shaped(results, shaper or Executed(), **knobs)


@pytest.mark.parametrize(
    ("results", "share"),
    [([5], 1), ([5, 6], 1), ([5, 5], 1 / 2), ([None, 5], 1 / 2), ([5, 6, 5, None], 1 / 2), ([None], 0), ([], 0)],
)
def test_exploration_pays_for_results_that_are_new(results, share):
    assert paid(results)["exploration"] == pytest.approx(share)


def test_parts_have_the_papers_weights_and_the_verifiers_word_is_kept():
    scores = paid([5, None])
    assert scores["reward"] == pytest.approx((2 * 1 + 3 * 1 + 1 * 0 + 1 * 0.5 + 2 * 0.5) / 9)
    assert scores["outcome"] == 1.0
    assert paid([5], Executed(0, 1, 0, 0, 0))["reward"] == 1.0


def test_repeating_an_easy_call_never_pays():
    assert paid([5] * 4)["reward"] < paid([5])["reward"]


def test_nothing_is_paid_for_exploring_without_coming_to_an_end():
    scores = paid([5, 6], ended=False, reward=0.0)
    assert (scores["format"], scores["exploration"]) == (0.0, 0.0)
    assert scores["reward"] == pytest.approx(0.5 / 9)


def test_a_part_the_task_does_not_measure_is_named():
    tree, leaf = session([5])
    del leaf.scores["exact"]
    with pytest.raises(PartError, match=f"leaf {leaf.id} of tree 't' has no part 'exact': the task 'sql'"):
        Executed()(tree, 10)
    Executed(exact=0)(tree, 10)
