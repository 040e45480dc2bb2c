"""What survives a step: ages, batches on disk, and past trees that teach again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rolltree.errors import RolltreeError
from rolltree.replay.buffer import Recall, ReplayBuffer, RolloutBatch, load_batches, save_batches
from rolltree.testing.forests import flat, grown
from rolltree.tree import Tree


def tree(seed: int = 0, name: str = "t") -> Tree:
    made = grown([[], [[], []]], np.random.default_rng(seed), id=name)
    for node in made:
        if node.trainable:
            node.version = np.full(len(node), seed, np.int32)
    return made


def test_batches_on_disk_are_the_batches(tmp_path: Path) -> None:
    batches = [
        RolloutBatch([tree(number, f"a{number}")], [tree(9, f"b{number}")], version=number, recalls=number)
        for number in range(3)
    ]
    save_batches(batches, tmp_path / "past")
    for old, new in zip(batches, load_batches(tmp_path / "past"), strict=True):
        assert (old.version, old.recalls) == (new.version, new.recalls)
        assert ([t.id for t in old.kept], [t.id for t in old.dropped]) == (
            [t.id for t in new.kept],
            [t.id for t in new.dropped],
        )
        for a, b in zip(old.trees, new.trees, strict=True):
            assert [(n.id, n.parent, n.usage, n.scores) for n in a] == [(n.id, n.parent, n.usage, n.scores) for n in b]
            for x, y in zip(a, b, strict=True):
                for name in ("actions", "logp", "sampling_logprob", "version"):
                    left, right = getattr(x, name), getattr(y, name)
                    assert left is right is None or np.array_equal(left, right, equal_nan=name != "actions")
    save_batches([], tmp_path / "none")
    assert load_batches(tmp_path / "none") == []


def test_recalled_trees_are_live_again_and_keep_why_they_failed() -> None:
    past = ReplayBuffer()
    one = tree()
    fates = ["trained", "dropped: no credit", "dropped: failed"]
    for leaf, usage in zip(one.leaves(), fates, strict=True):
        leaf.usage = usage
    past.remember(RolloutBatch([one]), Recall(window=2))
    assert past.draw(1, seed=0) == [one]
    assert [leaf.usage for leaf in one.leaves()] == ["", "", "dropped: failed"]


def test_only_the_last_steps_are_remembered_and_drawn_without_repetition() -> None:
    past = ReplayBuffer()
    for step in range(4):
        past.remember(RolloutBatch([tree(step, f"{step}{i}") for i in range(3)], version=step), Recall(window=2))
    assert {t.id[0] for t in past.trees} == {"2", "3"}
    drawn = past.draw(5, seed=1)
    assert len({t.id for t in drawn}) == 5
    assert [t.id for t in drawn] == [t.id for t in past.draw(5, seed=1)]
    assert any([t.id for t in past.draw(5, seed=s)] != [t.id for t in drawn] for s in range(5))


def test_what_is_recalled_is_a_share() -> None:
    recall = Recall(share=0.4, window=2)
    assert recall.count(10, available=20) == 4
    assert recall.count(10, available=1) == 1
    assert Recall(share=0.9).count(2, available=9) == 1, "something must be fresh"
    for bad in ({"share": 0.0}, {"share": 1.0}, {"window": 0}):
        with pytest.raises(RolltreeError, match=next(iter(bad))):
            Recall(**bad)


def test_a_queue_gives_each_tree_back_once_oldest_first(tmp_path: Path) -> None:
    past, rule = ReplayBuffer(), Recall(share=0.4, window=3, order="age")
    for step in range(3):
        past.remember(RolloutBatch([tree(step, f"{step}{i}") for i in range(2)], version=step), rule)
    assert [t.id for t in past.draw(3, 0, "age")] == ["00", "01", "10"]
    past.save(tmp_path / "past")
    again = ReplayBuffer()
    again.load(tmp_path / "past")
    for one in (past, again):
        one.remember(RolloutBatch([tree(3, "30")]), rule)
        assert [t.id for t in one.draw(9, 1, "age")] == ["11", "20", "21", "30"]
        assert one.trees == []
    with pytest.raises(RolltreeError, match="order='size'"):
        Recall(order="size")  # type: ignore[arg-type]


def test_a_rule_may_remember_only_groups_with_variance() -> None:
    mixed, flat_ = (flat(rewards, id=str(i)) for i, rewards in enumerate(([0.0, 1.0], [1.0, 1.0])))
    past = ReplayBuffer()
    past.remember(RolloutBatch([mixed, flat_]), Recall(informative=True))
    assert past.trees == [mixed]
    past.remember(RolloutBatch([flat_]), Recall(window=1))
    assert past.trees == [flat_]
