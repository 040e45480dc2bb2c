"""Each strategy check passes what is right and catches, by itself, the fault it is there for."""

import asyncio
import random

import numpy as np
import pytest

from rolltree.generate.independent import Independent
from rolltree.generate.turns import play
from rolltree.testing import check_strategy
from rolltree.testing import strategy as contract


class Broken:
    needs = frozenset()


class Crashes(Broken):
    async def grow_tree(self, tree, hand):
        await hand.extend(tree.root, max_tokens=2)
        raise KeyError("no such lever")


class WritesByItself(Broken):
    async def grow_tree(self, tree, hand):
        tree.extend(tree.root, np.array([1, 2], np.int32), status="done", finish="eos")


class HidesATemplate(Broken):
    async def grow_tree(self, tree, hand):
        await play(hand, tree.extend(tree.root, np.array([1], np.int32), role="template"))


class AsksForEver(Broken):
    async def grow_tree(self, tree, hand):
        while not any(len(leaf) for leaf in tree.leaves() if leaf.parent is not None):
            await hand.extend(tree.root)
            if not hand.budget.remaining("leaves") or tree.events[-1].kind == "budget":
                return


class OwnDice(Broken):
    async def grow_tree(self, tree, hand):
        await hand.extend(tree.root, n=1 + random.randrange(40), max_tokens=1)


class FirstComeFirstServed(Broken):
    """Forks only the leaf that happened to finish first."""

    async def grow_tree(self, tree, hand):
        runs = [asyncio.ensure_future(play(hand, tree.root)) for _ in range(4)]
        done, _ = await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
        first = next(iter(done)).result()
        await asyncio.gather(*runs)
        if first.parent is not None and len(first) > 1:
            await play(hand, hand.cut(first, 1))


class LooksAround(Broken):
    """Grows a second leaf only in a crowd."""

    async def grow_tree(self, tree, hand):
        for _ in range(min(2, len(hand.forest))):
            await play(hand, tree.root)


class ScoresFailures(Broken):
    async def grow_tree(self, tree, hand):
        for _ in range(8):
            leaf = await play(hand, tree.root)
            leaf.scores.setdefault("reward", 0.0)


class IgnoresCancellation(Broken):
    async def grow_tree(self, tree, hand):
        while True:
            try:
                await play(hand, tree.root)
                return
            except asyncio.CancelledError:
                await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("strategy", "check", "message"),
    [
        (Crashes(), "leaves_end_with_reasons", "crashed.*no such lever"),
        (WritesByItself(), "any_budget_is_honoured", "0 tokens were paid and 6"),
        (HidesATemplate(), "events_explain_every_node", r"no event bore the nodes \[1\]"),
        (AsksForEver(), "ends_when_nothing_comes", "still running after"),
        (OwnDice(), "same_seed_same_forest", "another order of service gave another tree"),
        (FirstComeFirstServed(), "same_seed_same_forest", "another order of service gave another tree"),
        (LooksAround(), "same_seed_same_forest", "another batch gave another tree"),
        (ScoresFailures(), "crashes_are_failures_not_zeros", "failed and yet has a reward of 0.0"),
        (IgnoresCancellation(), "cancelling_pauses", "still running; do not swallow CancelledError"),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, Broken) else None,
)
def test_a_broken_strategy_is_caught(strategy, check, message, monkeypatch):
    monkeypatch.setattr(contract, "PATIENCE", 0.5 if "still running" in message else 60.0)
    with pytest.raises(AssertionError, match=message):
        contract.STRATEGY_CHECKS[check](strategy)


def test_independent_rollouts_keep_the_contract():
    check_strategy(Independent(4))


def test_a_strategy_whose_needs_no_task_meets_is_told_so():
    with pytest.raises(AssertionError, match=r"needs 'telepathy'.*TabularEngine does not offer"):
        check_strategy(Independent(needs=frozenset({"telepathy"})))
