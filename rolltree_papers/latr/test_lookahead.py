"""Lookahead: which forks are made, which are dropped, and how the group is filled."""

from __future__ import annotations

import asyncio
from itertools import islice

import numpy as np
import pytest

from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.runner import grow
from rolltree.generate.signals import SignalError
from rolltree.testing.strategy import check_strategy
from rolltree.testing.tiny import SpellTask, Walk, tiny_engine
from rolltree.tree import Forest, Tree
from rolltree.tree.views import metrics
from rolltree_papers.latr import Look, Lookahead

EAGER = Look(absolute=0.03, relative=0.5, ages=(2, 4), alike=0.4)
"""Forks often under the contract's policy, whose rows are flat."""
CODEC = Letters("?ABCDabcd!", eos_id=10)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
def test_keeps_the_strategy_contract(share: float) -> None:
    check_strategy(Lookahead(4, share, EAGER, chunk=3))


def test_chance_and_more_alternatives_keep_it_too() -> None:
    check_strategy(Lookahead(5, 1.0, Look(3, 0.02, 0.6, (2,), by="chance", chance=0.5), chunk=5))


def synonym_tree(prefix: tuple[int, ...]) -> list[float]:
    """A capital every 12 tokens where the row hesitates, small letters between.

    After "A" or "B" the same letters follow (synonyms); after "C" or "D" each has its own. Which pair stands at a
    choice depends on what was chosen before, so both kinds occur in every tree.
    """
    row = np.full(11, 1e-6)
    done = len(prefix) - 1
    if done >= 36:
        row[10] = 1.0
    elif done % 12 == 0:
        capitals = [t for t in prefix if 1 <= t <= 4]
        first = 3 if (len(capitals) + sum(capitals)) % 2 else 1
        row[first], row[first + 1] = 0.52, 0.48
    else:
        last = next(t for t in reversed(prefix) if 1 <= t <= 4)
        offset = {1: 0, 2: 0, 3: 0, 4: 2}[last]
        row[5 + (done // 3 + offset) % 4] = 1.0
    return list(row / row.sum())


class Choices(SpellTask):
    def items(self, split, seed=0):  # type: ignore[no-untyped-def]
        for i, item in enumerate(super().items(split, seed)):
            yield type(item)(f"x{i}", "?", "any")


def looked(look: Look, leaves: int = 8, n: int = 1, chunk: int = 16) -> Forest:
    task = Choices(stop=(), max_tokens=40)
    engine = TabularEngine(synonym_tree, CODEC)
    return asyncio.run(grow(Lookahead(leaves, 1.0, look, chunk=chunk), engine, task, islice(task.items("train"), n)))


def births(tree: Tree) -> list[tuple[bool, bool]]:
    """For every forced fork: whether it says the same as its row, and whether it was dropped for that."""
    out: list[tuple[bool, bool]] = []
    for node in tree:
        if node.forced:
            below = tree.leaves(node)
            reason = [e for e in tree.events if e.kind == "prune" and e.node in {n.id for n in tree.walk(node)}]
            own = any("still like" in e.why and ", with" not in e.why for e in reason)
            out.append((int(node.actions[0]) in (1, 2), own and all(leaf.status == "pruned" for leaf in below)))
    return out


def test_forks_that_reconverge_are_dropped_and_real_ones_kept() -> None:
    """Precision and recall of the drop on a tree whose synonyms are known."""
    tree = next(iter(looked(Look(ages=(8,)))))
    found = births(tree)
    dropped = [same for same, gone in found if gone]
    kept = [same for same, gone in found if not gone]
    assert dropped
    assert all(dropped)
    assert not any(kept)


def test_real_alternatives_give_more_answers_than_dropping_by_chance() -> None:
    by_likeness = metrics(next(iter(looked(Look(ages=(8,)))))).answers
    by_chance = [
        metrics(tree).answers for tree in looked(Look(ages=(8,), by="chance", chance=0.5), n=12)
    ]  # fmt: skip
    assert by_likeness >= np.mean(by_chance)


@pytest.mark.parametrize("chunk", [1, 5, 16, 64])
def test_the_tree_does_not_depend_on_how_many_tokens_are_written_at_once(chunk: int) -> None:
    def forced(tree: Tree) -> set[tuple[int, ...]]:
        return {tuple(tree.prefix(n).tolist()) for n in tree if n.forced}

    look = Look(ages=(8,))
    assert forced(next(iter(looked(look, chunk=chunk)))) == forced(next(iter(looked(look, chunk=7))))


def test_forks_pass_both_thresholds_and_rows_never_exceed_their_room() -> None:
    look = Look(absolute=0.045, relative=0.12, ages=(3,), alike=0.5)
    task = Walk()
    strategy = Lookahead(6, 1.0, look, chunk=4)
    forest = asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("train"), 6), seed=3))
    forced = [(tree, node) for tree in forest for node in tree if node.forced]
    assert forced
    for _, node in forced:
        assert node.top is not None
        odds = np.exp(np.sort(node.top.logp[0])[::-1])
        assert odds[1] > 0.045
        assert odds[0] - odds[1] < 0.12
    for tree in forest:
        assert sum(leaf.status == "done" for leaf in tree.leaves()) >= 6
        handed = next(e for e in tree.events if e.kind == "select" and "rows" in e.numbers)
        assert 1 <= handed.numbers["rows"] <= 6


def test_greedy_and_forced_tokens_are_told_apart_from_sampled_ones() -> None:
    task = SpellTask()
    strategy = Lookahead(3, 1.0, Look(ages=()), most=4, chunk=4)
    forest = asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("train"), 4), seed=1))
    for tree in forest:
        stem = tree.children(tree.root)[0]
        assert stem.sampling_logprob is not None
        assert np.isnan(stem.sampling_logprob).all()
        assert metrics(tree).without_sampling_logprob > 0
        sampled = [n for n in tree if n.birth == "restart"]
        assert all(n.sampling_logprob is not None and np.isfinite(n.sampling_logprob).all() for n in sampled)


def test_a_pruned_fork_frees_its_place() -> None:
    """With room for two rows, the second choice can fork only because the first fork was dropped."""
    tree = next(iter(looked(Look(ages=(8,)), leaves=2)))
    found = births(tree)
    assert len(found) >= 2
    assert [gone for _, gone in found].count(False) <= 1
    assert found[0] == (True, True)


@pytest.mark.parametrize(("spare", "judged"), [("", True), ("+-*/", True), ("+A", False)])
def test_rows_are_not_judged_where_their_parent_goes_on_with_what_is_spared(spare: str, judged: bool) -> None:
    tree = next(iter(looked(Look(ages=(8,), spare=spare), leaves=2)))
    first = next(node for node in tree if node.forced)
    assert CODEC.decode(first.actions) == "B"  # and the row it left says "A"
    assert all(leaf.status == "pruned" for leaf in tree.leaves(first)) == judged


@pytest.mark.parametrize(("age", "dropped"), [(3, True), (4, True), (5, False), (6, False)])
def test_no_row_is_judged_by_a_window_in_which_it_ends(age: int, dropped: bool) -> None:
    """Two rows that say the same behind their first token and end with their fifth."""

    def alike(prefix: tuple[int, ...]) -> list[float]:
        row = np.full(11, 1e-9)
        if len(prefix) == 1:
            row[1], row[2] = 0.52, 0.48
        else:
            row[5 if len(prefix) < 5 else CODEC.eos_id] = 1.0
        return list(row / row.sum())

    task = Choices(stop=(), max_tokens=12)
    strategy = Lookahead(2, 1.0, Look(ages=(age,)), full=2.0, most=10, fill="none")
    tree = next(iter(asyncio.run(grow(strategy, TabularEngine(alike, CODEC), task, islice(task.items("train"), 1)))))
    assert [leaf.status == "pruned" for leaf in tree.leaves()] == [False, dropped]


@pytest.mark.parametrize(
    ("limit", "ages"), [(1024, (20, 30, 50)), (200, (20, 30, 50)), (48, (5, 7, 12)), (24, (3, 4, 6)), (10, (3,))]
)
def test_ages_follow_the_limit_where_none_are_given(limit: int, ages: tuple[int, ...]) -> None:
    assert Look().at(limit).ages == ages
    Look().check(limit)


@pytest.mark.parametrize(
    ("look", "said"),
    [
        (Look(ages=(2,)), "an age of 2 never drops a row: .* at most 0.50 alike and alike is 0.6; give ages of 3"),
        (Look(ages=(20, 30, 50)), "an age of 20 is never reached: a rollout has at most 16 tokens here"),
    ],
)
def test_ages_that_never_fire_are_refused_before_the_first_token(look: Look, said: str) -> None:
    with pytest.raises(SignalError, match=said):
        asyncio.run(grow(Lookahead(4, 1.0, look), tiny_engine(), SpellTask(), islice(SpellTask().items("train"), 1)))


def test_how_often_rows_were_judged_is_on_record() -> None:
    handed = [e for t in looked(Look(ages=(8,))) for e in t.events if e.kind == "select" and "judged" in e.numbers]
    assert handed
    assert all(e.numbers["judged"] > 0 for e in handed)


def test_copies_fill_a_group_only_when_asked_for_and_are_counted() -> None:
    task = SpellTask()
    look = Look(absolute=0.9, ages=(3,))  # no fork is ever made
    for fill, copies in (("copy", 3), ("restart", 0)):
        strategy = Lookahead(4, 1.0, look, chunk=4, fill=fill)  # type: ignore[arg-type]
        for tree in asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("train"), 3), seed=1)):
            assert len(tree.leaves()) == 4
            assert sum(n.birth == "graft" for n in tree) == copies
            if copies:
                assert metrics(tree).duplicated == copies
