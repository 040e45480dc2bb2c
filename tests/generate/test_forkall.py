"""Fork all, prune the like: widths, what is merged, and diversity against pruning by chance."""

from __future__ import annotations

import asyncio
from itertools import islice

import numpy as np
import pytest

from rolltree.engine.tabular import TabularEngine
from rolltree.generate.forkall import ForkAll, like_look_ups, like_results, overlap
from rolltree.generate.runner import grow
from rolltree.testing.strategy import check_strategy
from rolltree.testing.tiny import CODEC, STOP, Walk, tiny_engine
from rolltree.tree import Forest, Tree


@pytest.mark.parametrize(
    "strategy",
    [
        ForkAll(like_look_ups, 6, 3, 2),
        ForkAll(like_results, 6, 2, 3, same=1.0),
        ForkAll(like_look_ups, by="chance"),
        ForkAll(like_look_ups, 6, 2, 6, by="chance", first=6, exact=True),
    ],
    ids=["likeness", "merged", "chance", "exact"],
)
def test_keeps_the_strategy_contract(strategy: ForkAll) -> None:
    check_strategy(strategy)


def asks(prefix: tuple[int, ...]) -> list[float]:
    """One-letter queries, "a" half of the time."""
    row = np.zeros(27)
    if len(prefix) > 2 and prefix[-1] < 4 and (len(prefix) - 2) % 3 == 1:
        row[STOP] = 1.0
    else:
        row[:4] = (0.5, 0.3, 0.1, 0.1)
    return list(row)


def grown(strategy: ForkAll, n: int = 40, policy=asks) -> Forest:  # type: ignore[no-untyped-def]
    task = Walk()
    engine = tiny_engine() if policy is None else TabularEngine(policy, CODEC)
    return asyncio.run(grow(strategy, engine, task, islice(task.items("train"), n), seed=1))


def first_queries(tree: Tree) -> list[int]:
    """Queries of the first turn that were searched on from."""
    return [int(n.actions[0]) for n in tree.children(tree.root) if any(c.children for c in tree.children(n))]


def test_pruning_the_like_searches_on_from_more_different_queries_than_pruning_by_chance() -> None:
    kept = {by: grown(ForkAll(like_look_ups, 8, 4, 2, by=by)) for by in ("likeness", "chance")}  # type: ignore[arg-type]
    different = {
        by: np.mean([len(set(first_queries(t))) / len(first_queries(t)) for t in forest]) for by, forest in kept.items()
    }
    assert all(len(first_queries(tree)) == 2 for forest in kept.values() for tree in forest)
    assert different["likeness"] > 0.9 > different["chance"]


def test_paths_that_ask_the_same_at_different_places_all_go_on() -> None:
    """While a path has siblings no other one ends for what it asks: every path that can go on has one that does."""

    def either_way(prefix: tuple[int, ...]) -> list[float]:
        row = asks(prefix)
        return row if row[STOP] else [0.25 * (i in (0, 1, 20, 21)) for i in range(27)]

    seen = 0
    for tree in grown(ForkAll(like_look_ups, 20, 4, 2), policy=either_way):
        turns = {n.id: sum(x.role == "env" for x in tree.path(n)) for n in tree}
        for n in (n for n in tree if n.role == "env" and turns[n.id] == 1 and n.children):
            second = [x for x in tree if x.role == "env" and turns[x.id] == 2 and n in tree.path(x)]
            able = [x for x in second if x.children or x.status == "pruned"]
            seen += bool(able)
            assert not able or any(x.children for x in able)
    assert seen > 40


def test_the_frontier_never_exceeds_its_width_and_answers_are_never_pruned() -> None:
    for tree in grown(ForkAll(like_look_ups, 10, 3, 2), policy=None):
        went_on = [n for n in tree if n.role == "env" and n.children]
        turns = [sum(x.role == "env" for x in tree.path(n)) for n in went_on]
        assert all(turns.count(t) <= 2 for t in turns)
        assert all("reward" not in n.scores for n in tree if n.status == "pruned")
        assert sum(leaf.status == "done" for leaf in tree.leaves()) <= 10 + 2 * 3 - 1


def test_same_results_are_merged_and_different_ones_are_not() -> None:
    """All one-letter queries step left and see the same cell: one sibling of each family stays."""
    for tree in grown(ForkAll(like_results, 9, 3, 9, same=1.0), n=6):
        assert len(first_queries(tree)) == 1
        merged = [e for e in tree.events if e.kind == "prune"]
        assert {e.why for e in merged} == {"the same as a sibling"}
    for tree in grown(ForkAll(like_look_ups, 9, 3, 9, same=1.0), n=6):
        assert len(first_queries(tree)) == len(set(first_queries(tree)))


def test_overlap_is_jaccards_index() -> None:
    assert overlap({"a", "b"}, {"b", "c"}) == pytest.approx(1 / 3)
    assert overlap(set(), set()) == 1.0
    assert overlap({"a"}, set()) == 0.0


def rounds_of(tree: Tree) -> dict[int, int]:
    """The round in which a node came to be, from 1."""
    return {n.id: sum(x.role == "env" for x in tree.path(n)) + (n.role == "policy") for n in tree}


def missing_after(tree: Tree, n: int, turn: int) -> int:
    """n − n_c after a round."""
    rounds = rounds_of(tree)
    return max(n - sum("reward" in x.scores for x in tree if rounds[x.id] <= turn), 0)


def test_the_first_step_opens_its_own_number_and_as_many_go_on_as_leaves_are_missing() -> None:
    """PORTool: n at the prompt, then of all candidates n − n_c are kept."""
    n = 6
    for tree in grown(ForkAll(like_look_ups, n, 2, n, by="chance", first=n), policy=None, n=10):
        assert len(tree.children(tree.root)) == n
        rounds = rounds_of(tree)
        for turn in range(1, max(rounds.values())):
            live = [x for x in tree if x.role == "env" and rounds[x.id] == turn and "reward" not in x.scores]
            assert sum(bool(x.children) for x in live) == min(missing_after(tree, n, turn), len(live))


def test_by_chance_a_path_that_has_siblings_goes_before_one_that_has_none() -> None:
    n, seen = 6, 0
    for tree in grown(ForkAll(like_look_ups, n, 2, n, by="chance", first=n), policy=None, n=60):
        rounds = rounds_of(tree)
        for turn in range(2, max(rounds.values())):
            families: dict[int, list[bool]] = {}
            for node in tree:
                if node.role == "env" and rounds[node.id] == turn and "reward" not in node.scores:
                    came = tree[tree[node.parent].parent].id  # type: ignore[index]
                    families.setdefault(came, []).append(node.status != "pruned")
            if len(families) <= missing_after(tree, n, turn) < sum(map(len, families.values())):
                seen += 1
                assert all(any(kept) for kept in families.values())
    assert seen > 5


def test_drawn_among_all_candidates_no_more_end_than_were_asked_for_and_ends_are_given_up_too() -> None:
    given_up = over = 0
    for n in (3, 6):
        forest = grown(ForkAll(like_look_ups, n, 2, n, by="chance", first=n, exact=True), 30, None)
        assert {sum(leaf.status == "done" for leaf in tree.leaves()) for tree in forest} == {n}
        given_up += sum(node.status == "pruned" and "reward" in node.scores for tree in forest for node in tree)
        loose = grown(ForkAll(like_look_ups, n, 2, n, by="chance", first=n), 30, None)
        over += sum(sum(leaf.status == "done" for leaf in tree.leaves()) > n for tree in loose)
    assert given_up > 5
    assert over > 5, "which the rule without it allows"
