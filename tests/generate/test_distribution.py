"""Continuations have the exact conditional distribution of the policy after every kind of fork but a forced one."""

import asyncio
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from rolltree.engine.tabular import Letters, TabularEngine, enumerate_paths
from rolltree.generate.runner import open_hand
from rolltree.task.protocol import Item
from rolltree.testing.tiny import SpellTask

ABC = Letters("abc")
N = 1500


def policy(prefix):
    """Depends on the whole prefix, three letters deep."""
    weights = np.array([1.0 + (7 * sum((i + 1) * t for i, t in enumerate(prefix)) + 3 * k) % 5 for k in range(3)])
    return weights / weights.sum()


def tails(grow, seed=0):
    """Grow N branches by hand below a fixed path of three letters; their last two letters, counted."""

    async def go():
        task = SpellTask(stop=(), max_tokens=3)
        hand = open_hand(TabularEngine(policy, ABC), task, seed=seed)
        mine = hand.on(hand.plant(Item("one", "a", "a")))
        leaf = mine.tree.extend(mine.tree.root, ABC.encode("bca"), status="done", finish="eos")
        return Counter(tuple(mine.tree.prefix(n)[2:].tolist()) for n in await grow(mine, leaf))

    return asyncio.run(go())


def agree(counts, distribution):
    observed = np.array([counts[p] for p in distribution])
    assert observed.sum() == sum(counts.values())
    expected = np.array(list(distribution.values())) * observed.sum()
    return chisquare(observed, expected).pvalue


CONDITIONAL = dict(enumerate_paths(policy, 2, prefix=(0, 1)))


@pytest.mark.parametrize("mode", ["resample", "boundary", "vine"])
def test_a_fork_inside_a_run_has_the_conditional_distribution(mode):
    counts = tails(lambda hand, leaf: hand.fork(leaf, 2, mode=mode, n=N))
    assert agree(counts, CONDITIONAL) > 1e-3


def test_segment_after_segment_has_the_same_distribution():
    async def in_segments(hand, leaf):
        first = await hand.extend(hand.cut(leaf, 1), n=N, max_tokens=1)
        return [(await hand.extend(node, max_tokens=1))[0] for node in first]

    assert agree(tails(in_segments), CONDITIONAL) > 1e-3


def test_forks_of_forks_have_the_same_distribution():
    async def chained(hand, leaf):
        grown = []
        for _ in range(N):
            (branch,) = await hand.fork(leaf, 2)
            grown += await hand.fork(branch, 2)
        return grown

    assert agree(tails(chained), CONDITIONAL) > 1e-3


def test_a_streamed_run_that_is_stopped_and_extended_has_the_same_distribution():
    async def stopped(hand, leaf):
        head, grown = hand.cut(leaf, 1), []
        for _ in range(N):
            async with hand.stream(head) as growing:
                async for _part in growing:
                    growing.stop()
            node = growing.node
            grown.append((await hand.extend(node))[0] if node.status == "open" else node)
        return grown

    assert agree(tails(stopped), CONDITIONAL) > 1e-3


def test_a_restart_has_the_distribution_of_the_prompt():
    async def restarted(hand, leaf):
        return await hand.fork(leaf, mode="restart", n=N)

    distribution = {}
    for path, p in enumerate_paths(policy, 3, prefix=(0,)):
        distribution[path[1:]] = distribution.get(path[1:], 0) + p
    assert agree(tails(restarted), distribution) > 1e-3


def test_a_forced_fork_has_another_distribution_and_says_so():
    forced = []

    async def force(hand, leaf):
        grown = []
        for i in range(N):
            token = "abc"[i % 3]
            grown += await hand.fork(leaf, 2, mode="forced", tokens=token)
        forced.extend(hand.tree.parent(n) for n in grown)
        return grown

    assert agree(tails(force), CONDITIONAL) < 1e-6
    assert all(n.forced and n.birth == "forced" and np.isfinite(n.logp).all() for n in forced)


def test_after_the_forced_token_the_distribution_is_the_policys_again():
    async def force(hand, leaf):
        return await hand.fork(leaf, 2, mode="forced", tokens="b", n=N)

    distribution = {(1, *path): p for path, p in enumerate_paths(policy, 1, prefix=(0, 1, 1))}
    assert agree(tails(force), distribution) > 1e-3


def test_branches_are_independent_of_one_another():
    async def pairs(hand, leaf):
        head = hand.cut(leaf, 1)
        first = await hand.extend(head, n=N, max_tokens=1)
        second = await hand.extend(head, n=N, max_tokens=1)
        table = np.zeros((3, 3))
        for one, two in zip(first, second, strict=True):
            table[one.actions[0], two.actions[0]] += 1
        expected = np.outer(policy((0, 1)), policy((0, 1))) * N
        assert chisquare(table.ravel(), expected.ravel()).pvalue > 1e-3
        return []

    tails(pairs)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_segments_stop_where_an_unbroken_rollout_does_however_long_the_stop_string(length):
    stop, n = "cab", 1500
    distribution = Counter()
    for path, p in enumerate_paths(policy, 5, prefix=(0,)):
        at = ABC.decode(path).find(stop)
        distribution[path if at < 0 else path[: at + 3]] += p

    async def go():
        hand = open_hand(TabularEngine(policy, ABC), SpellTask(stop=(stop,), max_tokens=5))
        mine = hand.on(hand.plant(Item("one", "a", "a")))
        leaves, counts = await mine.extend(mine.tree.root, n=n, max_tokens=length), Counter()
        for first in leaves:
            leaf = first
            while leaf.status == "open":
                (leaf,) = await mine.extend(leaf, max_tokens=length)
            counts[tuple(mine.tree.prefix(leaf)[1:].tolist())] += 1
            assert (leaf.finish == "stop") == mine.text(leaf).endswith(stop)
        wasted = sum(e.numbers.get("wasted", 0) for e in mine.tree.events)
        assert mine.budget.spent.decoded == sum(map(len, mine.tree)) - 1 + wasted
        assert bool(wasted) == (length > 1)
        return counts

    counts = asyncio.run(go())
    assert set(counts) <= set(distribution)
    likely = {path: p for path, p in distribution.items() if n * p >= 5}
    observed = [counts[path] for path in likely]
    observed, expected = [*observed, n - sum(observed)], [n * p for p in likely.values()]
    assert chisquare(observed, [*expected, n - sum(expected)]).pvalue > 1e-3
