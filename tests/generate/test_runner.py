"""Forests: seeds, groups, budgets over several rounds, and progress."""

import asyncio
import itertools

from rolltree.control.ledger import Budget, Limits
from rolltree.generate.independent import Independent
from rolltree.generate.runner import RARELY, SERVING, grow, open_hand, rare_collections
from rolltree.testing.strategy import check_strategy, shape
from rolltree.testing.tiny import SpellTask, Walk, tiny_engine


def run(strategy, task=None, n=3, **options):
    task = task or SpellTask()
    return asyncio.run(grow(strategy, tiny_engine(), task, list(itertools.islice(task.items("train"), n)), **options))


class Again:
    """Independent rollouts, in rounds with a limit of their own."""

    needs = frozenset()

    async def grow_tree(self, tree, hand):
        for number in range(9):
            await Independent(99).grow_tree(tree, hand.on(tree).under(Limits(leaves=1), f"round {number}"))


def test_a_group_is_a_tree_of_depth_one_with_an_outcome_on_every_leaf():
    forest = run(Independent(4))
    for tree in forest:
        assert len(tree.leaves()) == 4
        assert {tree.depth(leaf) for leaf in tree.leaves()} == {1}
        assert all(leaf.scores["reward"] in (0.0, 1.0) for leaf in tree.leaves())
        assert tree.item == tree.id


def test_the_same_item_twice_grows_two_different_trees():
    item = next(SpellTask().items("train"))
    forest = asyncio.run(grow(Independent(2), tiny_engine(), SpellTask(), [item, item]))
    one, two = forest
    assert (one.id, two.id) == (item.id, f"{item.id}#2")
    assert one.item == two.item
    assert shape(one) != shape(two)


def test_seeds_make_forests():
    assert list(map(shape, run(Independent(3), seed=1))) == list(map(shape, run(Independent(3), seed=1)))
    assert list(map(shape, run(Independent(3), seed=1))) != list(map(shape, run(Independent(3), seed=2)))


def test_a_tree_keeps_its_purse_over_all_rounds():
    forest = run(Again(), per_prompt=Limits(leaves=3))
    assert [len(tree.leaves()) for tree in forest] == [3, 3, 3]


def test_rounds_keep_the_contract():
    check_strategy(Again())


def test_progress_reports_what_was_spent():
    seen = []
    budget = Budget()
    run(Independent(2), Walk(), progress=seen.append, budget=budget)
    assert seen[-1].trees == 3
    assert seen[-1].leaves == 6
    assert seen[-1].decoded == budget.spent.decoded
    assert [p.decoded for p in seen] == sorted(p.decoded for p in seen)


def test_the_collector_returns_to_its_thresholds_when_the_last_run_ends():
    import gc

    before = gc.get_threshold()
    one, two, server = rare_collections(), rare_collections(), rare_collections(SERVING)
    one.__enter__()
    server.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    assert gc.get_threshold() == RARELY, "the rarest wins"
    two.__exit__(None, None, None)
    assert gc.get_threshold() == SERVING
    server.__exit__(None, None, None)
    assert gc.get_threshold() == before


def test_a_second_prompt_for_the_same_item_can_be_planted():
    async def go():
        hand = open_hand(tiny_engine(), SpellTask())
        item = next(SpellTask().items("train"))
        plain, hinted = hand.plant(item), hand.plant(item, prompt=f"{item.prompt}xx", id="hinted")
        await Independent(2).grow_tree(hinted, hand.on(hinted))
        return plain, hinted

    plain, hinted = asyncio.run(go())
    assert hinted.item == plain.item
    assert len(hinted.root) == len(plain.root) + 2
    assert all("reward" in leaf.scores for leaf in hinted.leaves())


def test_a_smaller_budget_around_some_trees_binds_beside_their_purses():
    async def go():
        hand = open_hand(tiny_engine(), SpellTask(), per_prompt=Limits(leaves=4))
        one, two = (hand.plant(item) for item in itertools.islice(SpellTask().items("train"), 2))
        await Independent(1).grow_tree(one, hand.on(one))
        small = hand.under(Limits(leaves=4), "round")
        for tree in (one, two):
            await Independent(99).grow_tree(tree, small.on(tree))
        return len(one.leaves()), len(two.leaves()), small.budget.spent.leaves

    assert asyncio.run(go()) == (4, 1, 4)
