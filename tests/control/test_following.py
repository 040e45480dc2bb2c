"""A plan followed step by step: rounds, plans side by side, grades, and prompts that nothing more is asked of."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolltree.control.following import Following
from rolltree.control.order import ControlError, Delivery, Grades, Order, Prompt
from rolltree.control.plan import Apart, Plan, one_by_one
from rolltree.task.protocol import Item


def prompt(place: int) -> Prompt:
    return Prompt(Item(f"q{place}", "?", "!"), place)


def came(order: Order) -> Delivery:
    return Delivery(order, (float(order.prompt.place % 2),) * (order.width or 1))


def graded(grades: Grades) -> list[Delivery]:
    return [Delivery(Order(prompt(place), judged=False), r) for place, r in grades.rewards.items()]


def follow(plan: Plan, seed: int = 0) -> tuple[Following, list[tuple[int, ...]]]:
    """Answer rounds in any order; returns the names in the order they were asked."""
    rng, following = random.Random(seed), Following(plan, graded)
    waiting, names = following.begin(), list[tuple[int, ...]]()
    while waiting:
        names += [r.name for r in waiting if r.name not in names]
        asked = waiting.pop(rng.randrange(len(waiting)))
        assert following.asked[asked.name] == asked.orders
        waiting += following.answer(asked.name, [came(o) for o in asked.orders])
    assert following.over
    assert not following.asked
    return following, names


def climbing(p: Prompt, rungs: int) -> Plan:
    for rung in range(rungs):
        (delivery,) = yield [Order(p, rung + 1)]
        assert delivery.order.width == rung + 1, "a plan is answered for its own orders"


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(0, 2**16))
def test_plans_side_by_side_are_answered_in_their_own_order(rungs: list[int], seed: int) -> None:
    seen: list[Delivery] = []

    def plan() -> Plan:
        first = yield [Order(prompt(100))]
        assert [d.order.prompt.place for d in first] == [100]
        seen.extend((yield one_by_one(lambda p: climbing(p, rungs[p.place]), [prompt(i) for i in range(len(rungs))])))
        last = yield [Order(prompt(101))]
        assert len(last) == 1

    following, names = follow(plan(), seed)
    widths = [(i, k + 1) for i, n in enumerate(rungs) for k in range(n)]
    assert [(d.order.prompt.place, d.order.width) for d in seen] == widths, "in their order, whoever came first"
    assert [d.order.prompt.place for d in following.out] == [100, *(i for i, _ in widths), 101]
    assert set(names) == {(0,), (2,), *((1, i, k - 1) for i, k in widths)}, "each plan has streams of its own"
    assert following.closed == {i for i, n in enumerate(rungs) if n}


def test_rounds_without_orders_and_plans_without_plans_go_on_at_once() -> None:
    def plan() -> Plan:
        assert list((yield [])) == []
        assert list((yield Apart(()))) == []
        yield [Order(prompt(0))]

    _, names = follow(plan())
    assert names == [(2,)]


def test_grades_take_the_place_of_what_was_delivered_without_outcomes() -> None:
    def plan() -> Plan:
        delivered = yield [Order(prompt(0)), Order(prompt(1), judged=False)]
        said = yield Grades({1: (0.25,)})
        assert [d.rewards for d in said] == [(0.25,)]
        assert len(delivered) == 2

    following, _ = follow(plan())
    assert [d.rewards for d in following.out] == [(0.0,), (0.25,)]


@pytest.mark.parametrize("apart", [False, True])
def test_asking_more_after_the_last_order_is_refused(apart: bool) -> None:
    def plan() -> Plan:
        if apart:
            yield one_by_one(lambda p: climbing(p, 1), [prompt(0)])
        else:
            yield [Order(prompt(0), last=True), Order(prompt(1))]
        yield [Order(prompt(0))]

    following = Following(plan(), graded)
    (asked,) = following.begin()
    with pytest.raises(ControlError, match="orders more of 'q0'"):
        following.answer(asked.name, [came(o) for o in asked.orders])
