"""Lost tokens and partial rollouts: counted once, by why, and aged by the weights that wrote them."""

from __future__ import annotations

import numpy as np

from rolltree.metrics.policy import partial_rollouts, staleness
from rolltree.metrics.rollouts import Rollouts
from rolltree.metrics.usage import lost_tokens
from rolltree.tree import Tree
from rolltree.tree.table import table


def rollouts(tree: Tree, version: int | None = None) -> Rollouts:
    return Rollouts(table([tree]), version)


def tokens(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int32)


def test_what_a_lost_branch_shares_with_a_living_one_is_not_lost() -> None:
    tree = Tree("t", [1])
    stem = tree.extend(0, tokens(5))
    tree.extend(stem.id, tokens(3), status="done", scores={"reward": 1.0})
    inner = tree.extend(stem.id, tokens(4))
    tree.extend(inner.id, tokens(2), status="pruned")
    tree.extend(inner.id, tokens(1), status="failed")
    assert lost_tokens(rollouts(tree)) == {"budget/tokens_pruned": 4.0 + 2.0, "budget/tokens_failed": 1.0}
    tree.extend(inner.id, tokens(1), status="done")
    assert lost_tokens(rollouts(tree)) == {"budget/tokens_pruned": 2.0, "budget/tokens_failed": 1.0}


def test_partial_rollouts_are_counted_and_aged_by_their_oldest_token() -> None:
    tree = Tree("t", [1])
    for versions, status in (([3, 3], "done"), ([1, 3], "done"), ([0, 2], "paused")):
        node = tree.extend(0, tokens(2), status=status)
        node.version = np.array(versions, np.int32)
    assert partial_rollouts(rollouts(tree)) == {
        "rollout/partial": 1.0, "rollout/partial_tokens": 2.0, "rollout/partial_finished": 1.0,
        "staleness/partial_mean": 2.5, "staleness/partial_max": 3.0,
    }  # fmt: skip
    whole = Tree("u", [1])
    whole.extend(0, tokens(2), status="done").version = np.array([4, 4], np.int32)
    assert partial_rollouts(rollouts(whole)) == {}


def test_staleness_is_of_the_tokens_in_the_loss_whose_writer_is_known() -> None:
    tree = Tree("t", [1])
    one = tree.extend(0, tokens(4))
    one.version = np.array([-1, 5, 3, 5], np.int32)
    tree.extend(0, tokens(2)).version = np.array([0, 0], np.int32)
    tree.extend(0, tokens(1), role="env", trainable=False)
    assert staleness(rollouts(tree, 5)) == {"staleness/mean": (0 + 2 + 0 + 5 + 5) / 5, "staleness/max": 5.0}
    one.weight = np.array([1, 1, 1, 0], np.float32)
    assert staleness(rollouts(tree, 5)) == {"staleness/mean": 1.0, "staleness/max": 2.0}, "the rest is not trained on"
    one.version = np.full(4, -1, np.int32)
    assert staleness(rollouts(tree, 5)) == {}
