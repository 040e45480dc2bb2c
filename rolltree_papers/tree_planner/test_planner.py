"""Plan tries: merging, backtracking by state, success bounded by the sampled plans, and the tokens' crossing point."""

from __future__ import annotations

import pytest

from rolltree_papers.tree_planner import END, plan_trie, valid
from rolltree_papers.tree_planner.study import Household, crossing, ratio, walked


def test_what_plans_share_stands_once_and_the_same_action_elsewhere_is_another_node() -> None:
    trie = plan_trie([["a", "b"], ["a", "c"], ["b", "a"], ["a", "b"]])
    assert sorted(n.payload for n in trie.root.children) == ["a", "b"]
    a = trie.root.children[0]
    assert (a.visits, [c.payload for c in a.children]) == (3, ["b", "c"])
    assert sum(n.payload == END for n in trie) == 3
    assert len(valid(trie.root)) == 2


def test_a_dead_end_is_left_for_the_nearest_ancestor_with_the_state_of_then() -> None:
    house = Household(3)
    plans = [["do 0", "do 1", "try 0 at 2"], ["do 0", "do 1", "try 1 at 2"], ["do 0", "try 2 at 1", "do 2"],
             ["do 0", "do 1", "do 2"]]  # fmt: skip
    for seed in range(20):
        found = walked(house, plans, seed=seed)
        assert found.reached
        assert found.state == 3
        assert found.taken == plans[3]
    assert not walked(house, plans[:3]).reached
    assert any(not walked(house, plans, seed=s, corrections=0).reached for s in range(20)), "no way back"


@pytest.mark.parametrize("wrong", [0.1, 0.4])
def test_success_is_that_some_sampled_plan_is_feasible(wrong: float) -> None:
    """With a perfect choice, and with any choice that may correct itself often enough."""
    house = Household(5, wrong)
    for seed in range(40):
        plans = house.plans(6, seed)
        possible = any(house.feasible(plan) for plan in plans)
        assert walked(house, plans, seed=seed, perfect=True).reached == possible
        assert walked(house, plans, seed=seed, corrections=100).reached == possible


def test_backtracking_is_never_worse() -> None:
    house = Household(6, 0.3)
    with_, without = (
        [walked(house, house.plans(10, s), seed=s, corrections=c).reached for s in range(60)] for c in (100, 0)
    )
    assert sum(with_) > sum(without)
    assert all(a >= b for a, b in zip(with_, without, strict=True))


def test_the_ratio_of_tokens_falls_with_length_and_is_above_one_for_short_tasks_and_many_plans() -> None:
    lengths = (1, 2, 4, 8, 16)
    found = [ratio(length, 25, 8) for length in lengths]
    assert found == sorted(found, reverse=True)
    assert found[0] > 1 > found[-1]
    assert ratio(8, 200, 8) > 1 > ratio(8, 5, 8)
    assert crossing(5) < crossing(50)
