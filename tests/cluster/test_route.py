"""Where requests go."""

import random

from hypothesis import given
from hypothesis import strategies as st

from rolltree.cluster.route import Router


def test_a_group_stays_where_its_prefix_is_and_groups_spread() -> None:
    router = Router[str]()
    loads = dict.fromkeys("abcd", 0)
    homes = {}
    for name in map(str, range(40)):
        chosen = {router.choose(name, loads) for _ in range(8)}
        assert len(chosen) == 1
        homes[name] = chosen.pop()
    assert all(list(homes.values()).count(engine) == 10 for engine in loads)


@given(st.randoms(use_true_random=False), st.integers(0, 10))
def test_no_engine_is_far_busier_than_the_idlest(rng: random.Random, free: int) -> None:
    router = Router[int](free=free, slack=1.5)
    loads = dict.fromkeys(range(4), 0)
    for _ in range(60):
        affinity, one_ends = rng.choice(["", "x", "y", "z"]), rng.random() < 0.3
        least = min(loads.values())
        chosen = router.choose(affinity, loads)
        assert loads[chosen] <= free + 1.5 * least
        loads[chosen] += 1
        if one_ends:
            busiest = max(loads, key=lambda engine: loads[engine])
            loads[busiest] -= 1


def test_a_prefix_of_an_engine_that_left_finds_a_new_home() -> None:
    router = Router[str]()
    first = router.choose("t", {"a": 0, "b": 0})
    router.forget(first)
    other = ({"a", "b"} - {first}).pop()
    assert router.choose("t", {other: 3}) == other
    # It does not move back when an engine of that name returns.
    assert router.choose("t", {first: 0, other: 3}) == other


def test_homes_are_forgotten_oldest_first() -> None:
    router = Router[str](homes=2)
    loads = {"a": 0, "b": 0}
    first = router.choose("1", loads)
    router.choose("2", loads)
    router.choose("3", loads)
    # "1" is new again, and goes to the engine with fewer prefixes, which is no longer its old one.
    assert router.choose("1", loads) == first
    assert router.choose("2", {**loads, first: 1}) != first
