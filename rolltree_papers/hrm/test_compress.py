"""What `hrm` promises beside what all of its kind do."""

from __future__ import annotations

import asyncio
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolltree.analysis.compress import blocks, compressed
from rolltree.analysis.step_rows import RowRules, prm_rows
from rolltree.generate.runner import grow
from rolltree.testing.tiny import CODEC, SpellTask, Walk, tiny_engine
from rolltree.tree import Tree
from rolltree_papers.hrm import WholeTree
from rolltree_papers.hrm.study import features, grown


@given(st.integers(0, 10**6))
def test_nothing_is_lost_and_every_text_stays_a_way_through_the_tree(seed: int) -> None:
    root = grown(3, Random(seed), 0.1)
    out, _ = compressed(root, Random(seed))
    assert out.counts() == root.counts()
    ways = sorted("".join(b.text for b in path) for path in root.paths())
    assert sorted("".join(b.text for b in path) for path in out.paths()) == ways


def whole(ways: int = 4, height: int = 2) -> list[Tree]:
    task = SpellTask()
    strategy = WholeTree(ways, height, 3, "")
    return list(asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("test"), 3), seed=1)))


def test_a_whole_tree_has_all_ways_and_its_dead_ends_have_an_outcome() -> None:
    for tree in whole():
        assert len(tree.children(tree.root)) == 4
        for node in tree.children(tree.root):
            assert len(tree.children(node)) == (4 if node.finish == "length" or node.status == "open" else 0) or (
                node.status == "done"
            )
        assert all(n.status == "done" and "reward" in n.scores for n in tree.leaves())
        assert any(n.finish == "depth" for n in tree.leaves())


def test_rows_of_the_compressed_tree_stand_beside_those_of_the_tree() -> None:
    merged = 0
    for tree in whole():
        plain = list(prm_rows(tree, CODEC.decode, RowRules(soft=True, until_error=False)))
        both = list(prm_rows(tree, CODEC.decode, RowRules(soft=True, until_error=False, compress=True)))
        assert both[: len(plain)] == plain
        assert len(both) == 2 * len(plain)
        texts = sorted("".join(row["completions"]) for row in plain)
        assert sorted("".join(row["completions"]) for row in both[len(plain) :]) == texts
        merged += sum(len(row["completions"]) for row in plain) - sum(len(r["completions"]) for r in both[len(plain) :])
        found = blocks(tree, CODEC.decode)
        assert found is not None
        assert found.counts()[1] == len(plain)
    assert merged, "some steps were made one"


def test_a_tree_in_which_an_environment_speaks_is_not_compressed() -> None:
    task = Walk()
    forest = asyncio.run(grow(WholeTree(2, 2), tiny_engine(), task, islice(task.items("test"), 2), seed=1))
    assert all(blocks(tree, CODEC.decode) is None for tree in forest)


def test_a_mended_error_is_a_feature_of_two_steps_alone() -> None:
    assert features("10") == [1.0, 0.0, 0.0]
    assert features("1001") == [1.0, 1.0, 1.0]
    assert features("0110") == pytest.approx([1.0, 1.0, 0.0])
