"""A run observed while it is written: probes see every token, and stopping keeps what exists."""

import asyncio
import itertools

import numpy as np
import pytest

from rolltree.control.ledger import Limits
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.runner import open_hand
from rolltree.testing.tiny import CODEC, SpellTask, tiny_engine


def by_hand(use, engine=None, **options):
    async def go():
        hand = open_hand(engine or tiny_engine(), SpellTask(), **options)
        mine = hand.on(hand.plant(next(hand.task.items("train"))))
        await use(mine)
        return mine

    return asyncio.run(go())


def endless(**options):
    return TabularEngine(lambda p: [1.0] + [0.0] * 25, Letters(CODEC.alphabet), **options)


def test_increments_are_in_the_node_when_they_are_seen_and_nothing_is_lost():
    async def use(hand):
        seen = []
        async with hand.stream(hand.tree.root, want={"entropy", "top:2"}) as growing:
            async for part in growing:
                seen += part.actions.tolist()
                assert growing.node.actions.tolist() == seen
                assert len(growing.node.entropy) == len(growing.node.top.ids) == len(seen)
        (plain,) = await hand.extend(hand.tree.root, want={"entropy", "top:2"})
        hand.node = growing.node
        assert hand.node.status == "done"
        assert hand.budget.spent.decoded == len(seen) + len(plain)

    one = by_hand(use)
    same = by_hand(lambda hand: hand.extend(hand.tree.root))
    assert one.node.actions.tolist() == same.tree[1].actions.tolist()
    assert np.array_equal(one.node.logp, same.tree[1].logp)


@pytest.mark.parametrize(("finish", "status"), [("abort", "open"), ("repetition", "done")])
def test_a_probe_that_stops_keeps_what_exists(finish, status):
    async def use(hand):
        async with hand.stream(hand.tree.root) as growing:
            async for _ in growing:
                if len(growing.node) >= 4:
                    growing.stop(finish)
        hand.node = growing.node

    hand = by_hand(use, endless())
    assert 4 <= len(hand.node) < 16
    assert (hand.node.status, hand.node.finish) == (status, finish)
    assert hand.budget.spent.decoded == len(hand.node)
    assert hand.budget.held("decoded") == 0


def test_injecting_after_a_stop_goes_on_from_there():
    async def use(hand):
        async with hand.stream(hand.tree.root) as growing:
            async for _ in growing:
                break
        hint = await hand.force(growing.node, "xy", role="hint")
        (rest,) = await hand.extend(hint)
        hand.path = hand.text(rest)
        hand.lens = len(growing.node), len(rest)

    hand = by_hand(use, endless())
    assert sum(hand.lens) == 16
    assert hand.path == "a" * hand.lens[0] + "xy" + "a" * hand.lens[1]
    assert hand.budget.spent.leaves == 1


def test_a_streamed_run_can_be_cut_while_it_is_written():
    async def use(hand):
        async with hand.stream(hand.tree.root) as growing:
            async for _ in growing:
                if len(hand.tree.prefix(growing.node)) == 2 + 5:
                    hand.head = hand.cut(growing.node, 2)
        hand.tail = growing.node

    hand = by_hand(use, endless())
    assert (len(hand.head), len(hand.tail)) == (2, 14)
    assert hand.tail.parent == hand.head.id
    assert hand.budget.spent.decoded == 16


def test_an_empty_budget_streams_nothing():
    async def use(hand):
        async with hand.stream(hand.tree.root) as growing:
            hand.parts = [part async for part in growing]
        assert growing.node is None

    assert by_hand(use, budget=Limits(decoded=0)).parts == []


def test_an_engine_that_dies_in_the_stream_leaves_a_failed_node_with_what_came():
    ticks = itertools.count()

    async def die():
        if next(ticks) == 5:
            raise OSError("the device is lost")
        await asyncio.sleep(0)

    async def use(hand):
        async with hand.stream(hand.tree.root) as growing:
            async for _ in growing:
                pass
        hand.node = growing.node

    hand = by_hand(use, endless(pace=die))
    assert hand.node.status == "failed"
    assert 0 < len(hand.node) < 16
    assert hand.budget.spent.decoded == len(hand.node)


def test_leaving_by_an_exception_or_a_cancellation_settles_the_accounts():
    async def crash(hand):
        async def probe(growing):
            async with growing:
                async for _ in growing:
                    raise KeyError

        growing = hand.stream(hand.tree.root)
        with pytest.raises(KeyError):
            await probe(growing)
        assert growing.node.status == "open"
        assert hand.budget.held("decoded") == 0

    async def cancel(hand):
        async def watch():
            async with hand.stream(hand.tree.root) as growing:
                async for _ in growing:
                    pass

        task = asyncio.ensure_future(watch())
        while not hand.tree.root.children or len(hand.tree[1]) < 3:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert hand.tree[1].status == "paused"
        assert 3 <= len(hand.tree[1]) == hand.budget.spent.decoded < 16
        assert hand.budget.held("decoded") == 0

    by_hand(crash, endless())
    by_hand(cancel, endless())
