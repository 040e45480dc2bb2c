from __future__ import annotations

import pytest

from rolltree.filter.groups import Mixed, sift
from rolltree.filter.lengths import Overlong
from rolltree.tree import Tree


def group(name: str, rewards: list[float | None], lengths: list[int] | None = None) -> Tree:
    tree = Tree(name, [1, 2])
    for i, reward in enumerate(rewards):
        n = 3 if lengths is None else lengths[i]
        leaf = tree.extend(0, [5] * n, status="failed" if reward is None else "done")
        if reward is not None:
            leaf.scores["reward"] = reward
    return tree


def test_only_groups_whose_outcomes_differ_are_kept() -> None:
    trees = [group("mixed", [0.0, 1.0]), group("right", [1.0, 1.0]), group("alone", [1.0, None]), group("lost", [None])]
    kept, dropped = sift(trees, [Mixed()])
    assert [t.id for t in kept] == ["mixed"]
    assert {t.id: t.leaves()[0].usage for t in dropped} == {
        "right": "dropped: all outcomes are 1", "alone": "dropped: 1 live leaves", "lost": "dropped: 0 live leaves",
    }  # fmt: skip
    assert all(t.events[-1].kind == "drop" for t in dropped)
    assert all(leaf.usage == "" for leaf in trees[0].leaves())


@pytest.mark.parametrize(("length", "punished"), [(80, 0.0), (90, -0.5), (100, -1.0), (85, -0.25)])
def test_overlong_answers_are_punished_as_in_dapos_equation(length: int, punished: float) -> None:
    tree = group("t", [1.0], [length])
    Overlong(buffer=0.2, penalty=1.0)(tree, 100)
    Overlong(buffer=0.2, penalty=1.0)(tree, 100)
    leaf = tree.leaves()[0]
    assert leaf.scores["reward"] == pytest.approx(1.0 + punished)
    assert leaf.scores["outcome"] == 1.0
