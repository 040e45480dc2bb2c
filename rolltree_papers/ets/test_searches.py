"""What `ets` promises beside what all of its kind do."""

from __future__ import annotations

from rolltree.tree import Tree
from rolltree_papers.ets.study import votes, within


def test_votes_by_number_by_weight_and_by_the_best() -> None:
    voters = [("a", 0.2), ("a", 0.2), ("b", 0.5), ("c", 0.6), ("c", 0.1)]
    assert votes(voters) == ("a", "c", "c")
    assert votes([("b", 0.5), ("a", 0.4), ("a", 0.4)]) == ("a", "a", "b")
    assert votes([]) == (None, None, None)


def test_votes_may_decode_what_the_search_did() -> None:
    tree = Tree("t", [0])
    for length in (3, 4, 5):
        tree.extend(0, [1] * length, status="done")
    assert [len(leaf) for leaf in within(tree, 7)] == [3, 4]
    assert [len(leaf) for leaf in within(tree, 1)] == [3]
