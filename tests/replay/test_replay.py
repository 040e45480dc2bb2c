"""What survives a step: the rule that bounds lag, ages, harvests on disk, and past trees that teach again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolltree.contract.forests import flat, grown
from rolltree.errors import RolltreeError
from rolltree.replay.admission import room
from rolltree.replay.harvest import Harvest
from rolltree.replay.recall import Past, Recall
from rolltree.replay.waiting import Waiting
from rolltree.tree import Tree


def tree(seed: int = 0, name: str = "t") -> Tree:
    made = grown([[], [[], []]], np.random.default_rng(seed), id=name)
    for node in made:
        if node.trainable:
            node.version = np.full(len(node), seed, np.int32)
    return made


@given(staleness=st.integers(0, 9), steps=st.integers(1, 40))
def test_the_rule_bounds_the_lag_and_reaches_it(staleness: int, steps: int) -> None:
    """A trainer that consumes the oldest batch per version: lags rise to the bound and stay there."""
    waiting: list[int] = []
    lags: list[int] = []
    for version in range(steps):
        waiting += [version] * room(staleness, version=version, submitted=version + len(waiting))
        lags.append(version - waiting.pop(0))
    assert lags == [min(version, staleness) for version in range(steps)]


def test_nothing_may_start_while_too_much_is_under_way() -> None:
    assert room(0, version=3, submitted=4) == 0
    assert room(2, version=3, submitted=9) == 0
    assert room(2, version=3, submitted=4) == 2


def test_a_queue_on_disk_is_the_queue(tmp_path: Path) -> None:
    queue = Waiting()
    for number in range(3):
        queue.put(
            Harvest([tree(number, f"a{number}")], [tree(9, f"b{number}")], rounds=2, version=number, recalls=number)
        )
    queue.save(tmp_path / "waiting")
    again = Waiting()
    again.load(tmp_path / "waiting")
    assert (len(again), again.leaves) == (len(queue), queue.leaves)
    while len(queue):
        old, new = queue.take(), again.take()
        assert (old.rounds, old.version, old.recalls) == (new.rounds, new.version, new.recalls)
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
    empty = Waiting()
    empty.save(tmp_path / "none")
    empty.load(tmp_path / "none")
    assert len(empty) == 0


def test_recalled_trees_are_live_again_and_keep_why_they_failed() -> None:
    past = Past()
    one = tree()
    fates = ["trained", "dropped: nothing to teach", "dropped: failed"]
    for leaf, usage in zip(one.leaves(), fates, strict=True):
        leaf.usage = usage
    past.remember(Harvest([one]), Recall(window=2))
    assert past.draw(1, seed=0) == [one]
    assert [leaf.usage for leaf in one.leaves()] == ["", "", "dropped: failed"]


def test_only_the_last_steps_are_remembered_and_drawn_without_repetition() -> None:
    past = Past()
    for step in range(4):
        past.remember(Harvest([tree(step, f"{step}{i}") for i in range(3)], version=step), Recall(window=2))
    assert {t.id[0] for t in past.trees} == {"2", "3"}
    drawn = past.draw(5, seed=1)
    assert len({t.id for t in drawn}) == 5
    assert [t.id for t in drawn] == [t.id for t in past.draw(5, seed=1)]
    assert any([t.id for t in past.draw(5, seed=s)] != [t.id for t in drawn] for s in range(5))


def test_what_is_recalled_is_a_share_that_ends() -> None:
    recall = Recall(share=0.4, window=2, until=10)
    assert recall.count(10, step=3, available=20) == 4
    assert recall.count(10, step=3, available=1) == 1
    assert recall.count(10, step=10, available=20) == 0
    assert Recall(share=0.9).count(2, step=0, available=9) == 1, "something must be fresh"
    for bad in ({"share": 0.0}, {"share": 1.0}, {"window": 0}):
        with pytest.raises(RolltreeError, match=next(iter(bad))):
            Recall(**bad)


def test_a_rule_may_remember_only_groups_with_variance() -> None:
    mixed, flat_ = (flat(rewards, id=str(i)) for i, rewards in enumerate(([0.0, 1.0], [1.0, 1.0])))
    past = Past()
    past.remember(Harvest([mixed, flat_]), Recall(informative=True))
    assert past.trees == [mixed]
    past.remember(Harvest([flat_]), Recall(window=1))
    assert past.trees == [flat_]
