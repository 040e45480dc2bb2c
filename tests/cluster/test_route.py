"""Where requests go."""

import random
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from rolltree.engine.route import Router


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


@dataclass(frozen=True)
class Asked:
    """A request, as far as a router sees it."""

    affinity: str
    number: int


def test_a_new_engine_gets_whole_groups_that_nobody_has_begun() -> None:
    router = Router[str]()
    groups = [[Asked(name, 8 * i + k) for k in range(8)] for i, name in enumerate("abcdefgh")]
    for group in groups:
        for asked in group:
            router.choose(asked.affinity, {"old": 0})
    for name in "ab":
        router.note(name, "old")
    waiting = [asked for group in groups[1:] for asked in group]
    moves = router.level({"old": waiting, "new": []}, {"old": 64, "new": 0})
    # Half of all requests, the last ones first; each group as a whole.
    assert [asked for _, asked in moves] == [asked for group in reversed(groups[4:]) for asked in group]
    loads = {"old": 64, "new": 0}
    for engine, asked in moves:
        loads[engine] -= 1
        assert router.choose(asked.affinity, loads) == "new"
        loads["new"] += 1
    assert router.choose("c", loads) == "old"


def test_who_shares_a_prefix_that_was_read_leaves_only_an_engine_that_is_much_busier() -> None:
    router = Router[str](free=8, slack=1.5)
    waiting = [Asked("t", n) for n in range(40)]
    for _ in waiting:
        router.choose("t", {"old": 0})
    router.note("t", "new")  # not its home: nothing is known by that
    router.note("t", "old")
    moves = router.level({"old": waiting, "new": []}, {"old": 44, "new": 0})
    # With 14 there, the next one would find 29 others here, which are 8 and half as many again as there.
    assert [asked.number for _, asked in moves] == list(range(39, 25, -1))
    assert router.level({"old": waiting, "new": []}, {"old": 8, "new": 0}) == []


@given(st.randoms(use_true_random=False), st.integers(2, 5))
def test_levelling_moves_each_at_most_once_and_makes_nobody_the_busiest(rng: random.Random, engines: int) -> None:
    router = Router[int](free=rng.randrange(4), slack=rng.choice([0.0, 1.0, 1.5]))
    waiting: dict[int, list[Asked]] = {engine: [] for engine in range(engines)}
    begun = {engine: rng.randrange(5) for engine in range(engines)}
    for number in range(rng.randrange(40)):
        name = rng.choice(["", *"pqrstu"])
        waiting[min(rng.randrange(engines), rng.randrange(engines))].append(Asked(name, number))
        if rng.random() < 0.5:
            router.note(name, router.choose(name, begun))
    loads = {engine: begun[engine] + len(waiting[engine]) for engine in waiting}
    moves = router.level(waiting, loads)
    assert len({asked.number for _, asked in moves}) == len(moves)
    assert all(asked in waiting[engine] for engine, asked in moves)
    most = max(loads.values())
    for engine, asked in sorted(moves, key=lambda move: move[1].number):
        loads[engine] -= 1
        loads[router.choose(asked.affinity, loads)] += 1
    assert max(loads.values()) <= most
    assert sum(loads.values()) == sum(begun.values()) + sum(map(len, waiting.values()))
