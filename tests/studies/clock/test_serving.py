"""Serving on the clock: what is small enough for paper, and that no request is lost whatever becomes of the engines."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studies.clock.hardware import Hardware
from studies.clock.link import Cache, Link
from studies.clock.serving.decode import decode_pool
from studies.clock.serving.elastic import HOW, scale
from studies.clock.serving.experts import fewest_moves, moved, peak, round_robin
from studies.clock.serving.prefill import Prefiller, PrefillPool
from studies.clock.serving.serve import Aggregated, Disaggregated, balanced, serve
from studies.clock.serving.traffic import Ask, Traffic

PAPER = Hardware(slots=2, plateau=1.0, per_sequence=0.0, prefill=0.1)


def ask(number, arrives=0.0, prompt=10, output=4):
    return Ask(id=number, left=output, context=prompt, arrives=arrives, scenario=0, prefix=0, output=output)


def gate(time, filled, late, **how):
    asked = {"forwarding": "offer", "patience": 5.0, "delay": 0.0} | how
    return PrefillPool(
        time, [Prefiller(0, PAPER)], filled=filled, late=late, rng=np.random.default_rng(0), **asked
    )  # fmt: skip


def test_a_request_is_prefilled_handed_over_and_decoded_in_turn():
    done, late = [], []
    link, cache = Link(bandwidth=10.0, latency=0.0), Cache(per_token=1.0)
    pool = decode_pool(PAPER, 1, done.append, prefills=False, link=link)
    pool.cache = cache
    time = pool.floor.time
    front = gate(time, pool.offer, late.append)
    for number in range(3):
        time.at(0.0, lambda number=number: front.arrive(ask(number)))
    while not time.empty:
        pool.floor.turn()
    # Prefilled until 1, 2 and 3; handed over in 1 s; 4 steps. The third waits for a slot until 6, then for its keys.
    assert [a.first for a in done] == pytest.approx([1, 2, 3])
    assert [a.ended for a in done] == pytest.approx([6, 7, 11])
    assert (pool.handed, pool.handing) == (3, pytest.approx(3))
    assert front.rejected > 0
    assert not late


def test_who_cannot_be_in_time_is_given_up_before_it_is_prefilled():
    done, late = [], []
    pool = decode_pool(PAPER, 4, done.append, prefills=False)
    front = gate(pool.floor.time, pool.offer, late.append, patience=2.5)
    for number in range(4):
        pool.floor.time.at(0.0, lambda number=number: front.arrive(ask(number)))
    while not pool.floor.time.empty:
        pool.floor.turn()
    assert (len(done), len(late)) == (2, 2)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 30), st.integers(1, 40), st.integers(1, 20)), min_size=1, max_size=25),
    st.lists(st.tuples(st.floats(0, 40), st.sampled_from(["grow", "drain", "hand_over", "lose"])), max_size=8),
    st.booleans(),
)
def test_nothing_is_lost_while_engines_come_and_go(asked, changes, prefills):
    done: list[Ask] = []
    pool = decode_pool(PAPER, 1, done.append, prefills=prefills)
    time = pool.floor.time
    asks = [ask(k, *one) for k, one in enumerate(asked)]
    for one in asks:
        time.at(one.arrives, lambda one=one: pool.offer(one))

    def change(what):
        members = list(pool.pool.engines)
        if what == "grow":
            pool.grow(1)
        elif len(members) > 1:
            getattr(pool, what)(members[0])

    for when, what in changes:
        time.at(when, lambda what=what: change(what))
    while not time.empty:
        pool.floor.turn()
    assert Counter(a.id for a in done) == Counter(a.id for a in asks)
    for one in done:
        assert sum(s.tokens for s in one.made) == one.output
        assert one.arrives <= one.first <= one.ended + 1e-6
    if not any(what == "lose" for _, what in changes):
        assert pool.again == 0


def test_old_reports_cost_first_tokens_and_offers_need_none():
    traffic = Traffic(3.0 * 16, 20.0)
    offered = serve(Disaggregated(6, 10, grouped=False), traffic, 0)
    by_age = [
        serve(Disaggregated(6, 10, "reported", delay, grouped=False), traffic, 0).first_in_time
        for delay in (0.0, 0.5, 2.0)
    ]
    assert by_age[0] > by_age[1] > by_age[2]
    assert offered.first_in_time > by_age[1]
    assert offered.asked == offered.done + offered.late


def test_pools_apart_keep_the_pace_of_a_token_that_prefills_break():
    traffic = Traffic(2.0 * 8, 20.0)
    from studies.clock.serving.serve import Limits

    strict = Limits(first=2.0, token=0.025)
    assert (
        serve(Disaggregated(4, 4), traffic, 0, limits=strict).in_time
        > serve(Aggregated(8), traffic, 0, limits=strict).in_time
    )
    assert 1 <= balanced(8, traffic) < balanced(8, traffic, kept=False) <= 7


def test_a_tide_is_met_by_those_who_grow_without_stopping():
    runs = {how: scale(how, 8, 0) for how in HOW}
    assert all(run.done == run.asked for run in runs.values())
    assert runs["elastic"].again == runs["replica"].again == runs["standby"].again == 0
    assert runs["elastic"].moved > runs["standby"].moved == 0
    assert runs["restart"].again > 0
    assert runs["elastic"].in_time > max(runs["replica"].in_time, runs["restart"].in_time)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(12, 64))
def test_experts_move_as_little_as_a_balance_allows(before, after, experts):
    old = round_robin(experts, before)
    new = fewest_moves(old, after)
    counts = Counter(new.values())
    assert set(new) == set(old)
    assert max(counts.values()) - min(counts.get(d, 0) for d in range(after)) <= 1
    held = Counter(old.values())
    over = sorted((held.get(d, 0) for d in range(after)), reverse=True)
    least, more = divmod(experts, after)
    stays = sum(min(count, least + (k < more)) for k, count in enumerate(over))
    assert moved(old, new) == experts - stays
    assert moved(old, new) <= moved(old, round_robin(experts, after))
    assert peak(old, new, in_place=True) <= peak(old, new, in_place=False)
    if after >= before:
        assert peak(old, new, in_place=True) <= max(held.values()) + 1


def test_the_same_seed_is_the_same_traffic_and_bursts_keep_the_mean():
    plain, burst = Traffic(50.0, 600.0, burst=1.0), Traffic(50.0, 600.0)
    assert [a.arrives for a in burst.asks(3)] == [a.arrives for a in burst.asks(3)]
    assert len(burst.asks(1)) == pytest.approx(len(plain.asks(1)), rel=0.2)
    assert len(replace(plain, profile=(0.5, 1.5)).asks(2)) == pytest.approx(30_000, rel=0.05)
