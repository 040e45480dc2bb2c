"""Steps read by log-prob where an environment answers: the answer is no step, and what counts is the policy's turn."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from rolltree.generate.frontier import GrowthRound
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.judge.protocol import Entry
from rolltree.generate.runner import open_hand
from rolltree.generate.signals import SignalError, mean_logp
from rolltree.generate.turns import stretch
from rolltree.recipe.treepo import SegmentTree, Split
from rolltree.testing.tiny import Walk, tiny_engine
from rolltree.tree import Tree


@pytest.mark.parametrize("split", ["likely", "unlikely"])
def test_treepo_splits_by_the_turn_before_an_environments_answer(split: Split) -> None:
    task = Walk()
    item = next(task.items("train"))

    async def go() -> None:
        hand = open_hand(tiny_engine(), task, seed=1)
        tree = hand.plant(item)
        hand = hand.on(tree)
        live = [n for n in await stretch(hand, tree.root, 8) if n.status == "open"][:3]
        assert [n.role for n in live] == ["env"] * 3
        strategy = SegmentTree(leaves=40, segment=0, ways=10, split=split)
        widths = strategy.widths(hand, GrowthRound(0, tuple(live), 0, 0, 40))
        means = [float(np.mean(tree[n.parent].logp)) for n in live]  # type: ignore[index, arg-type]
        sign = 1 if split == "likely" else -1
        assert int(np.argmax(widths)) == int(np.argmax([sign * m for m in means]))
        assert len(set(widths)) > 1

    asyncio.run(go())


def test_one_reading_for_the_search_and_the_judge() -> None:
    tree = Tree("t", [0])
    first = tree.extend(tree.root, [1, 2], logp=np.array([-1.0, -3.0], np.float32))
    answer = tree.extend(first, [9, 9, 9], role="env")
    second = tree.extend(answer, [3], logp=np.array([-0.5], np.float32))
    last = tree.extend(second, [9], role="env")
    assert mean_logp(tree.path(answer)) == -2.0
    assert mean_logp(tree.path(last)) == -0.5
    judged = asyncio.run(Confidence("step")(None, [[Entry(tree, answer), Entry(tree, last)]], np.random.default_rng(0)))
    assert judged[0] == pytest.approx([np.exp(-2.0), np.exp(-0.5)])


def test_a_path_without_log_probs_is_refused_instead_of_read_as_certain() -> None:
    tree = Tree("t", [0])
    node = tree.extend(tree.root, [1, 2])
    with pytest.raises(SignalError, match=r"node 1 stands below no log-probs"):
        mean_logp(tree.path(node))
