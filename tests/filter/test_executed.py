"""What ReEx-SQL's reward pays for, and what a quick success is worth."""

from __future__ import annotations

import pytest

from rolltree.tree import Tree
from rolltree_papers.poly_ppo import Brisk
from rolltree_papers.reex_sql import Executed, PartError


def session(results, *, ended=True, reward=1.0, exact=0.0, entities=0.5):
    """A rollout with these results of its calls (None = it failed), which then ends by itself or not."""
    tree = Tree("t", [0], task="sql")
    here = tree.root
    for result in results:
        call = tree.extend(here, [1, 2], status="done")
        here = tree.extend(call, [9] if result is None else [result], role="env", notes={"failed": result is None})
    last = tree.extend(here, [3], status="done")
    leaf = tree.extend(last, [], role="env") if ended else last
    tree.close(leaf, "done", "stop" if ended else "length")
    leaf.scores.update(reward=reward, exact=exact, entities=entities)
    return tree, leaf


def paid(results, shaper=None, **knobs):
    tree, leaf = session(results, **knobs)
    for _ in range(2):  # idempotent
        (shaper or Executed())(tree, 10)
    return leaf.scores


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


def test_a_quick_success_is_worth_more_and_a_failure_nothing():
    assert paid([5], Brisk(0.5))["reward"] == pytest.approx(1 - 0.5 * 3 / 10)
    assert paid([5] * 9, Brisk(0.5))["reward"] == pytest.approx(0.5)
    assert paid([5], Brisk(0.5), reward=0.0)["reward"] == 0.0
