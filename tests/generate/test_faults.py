"""Faults injected for real: each becomes a failed node with the exception's text, never a zero and never a lost run."""

import asyncio
import itertools
import re
from typing import ClassVar

import numpy as np
import pytest

from rolltree.control.ledger import RESOURCES, Budget, Limits
from rolltree.engine.protocol import EngineError, Sample
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.answers import ItemError, check_item
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow, open_hand
from rolltree.generate.setting import Patience
from rolltree.generate.strategy import NeedsError
from rolltree.generate.turns import play, proceed
from rolltree.task.protocol import Item
from rolltree.testing.faulty import Wrapped
from rolltree.testing.tiny import CODEC, SpellTask, Walk, tiny_engine
from rolltree.tree import Forest


def run(strategy=None, engine=None, task=None, n=2, **options):
    task = task or SpellTask()
    items = list(itertools.islice(task.items("train"), n))
    return asyncio.run(grow(strategy or Independent(3), engine or tiny_engine(), task, items, **options))


def failures(forest):
    return [(e.why, e.numbers) for tree in forest for e in tree.events if e.kind == "fail"]


def endless():
    return TabularEngine(lambda p: [1.0] + [0.0] * 25, Letters(CODEC.alphabet))


class Verifierless(SpellTask):
    async def verify(self, item, state, text):
        raise ZeroDivisionError("no reference solution")


class Frozen(Walk):
    async def step(self, item, state, text):
        await asyncio.Event().wait()


class OnceBroken(Walk):
    """Each of its steps fails the first time it is taken."""

    seen: ClassVar[set[tuple[str, int, str]]] = set()

    async def step(self, item, state, text):
        if (item.id, state, text) not in self.seen:
            self.seen.add((item.id, state, text))
            raise ConnectionResetError
        return await super().step(item, state, text)


def test_a_verifier_that_raises_fails_the_leaf_and_never_scores_it():
    forest = run(task=Verifierless())
    leaves = [leaf for _, leaf in forest.leaves()]
    assert {leaf.status for leaf in leaves} == {"failed"}
    assert {leaf.finish for leaf in leaves} == {"error"}
    assert all(len(leaf) and "reward" not in leaf.scores for leaf in leaves)
    assert len(failures(forest)) == 6
    assert failures(forest)[0][0] == "the verifier: ZeroDivisionError: no reference solution"
    numbers = failures(forest)[0][1]
    assert numbers.pop("place").startswith("test_faults.py:")
    assert numbers == {"error": "ZeroDivisionError", "tries": 2}


def test_an_environment_that_hangs_is_timed_out():
    forest = run(task=Frozen(), patience=Patience(step_seconds=0.01, tries=2))
    hung = [leaf for _, leaf in forest.leaves() if leaf.status == "failed"]
    assert hung
    assert {leaf.role for leaf in hung} == {"env"}
    assert all("TimeoutError: no answer within 0.01 s" in why for why, _ in failures(forest))
    assert all(tree[leaf.parent].status == "done" for tree, leaf in forest.leaves() if leaf in hung)


def test_a_second_try_heals_and_is_recorded():
    OnceBroken.seen.clear()
    healed, plain = run(task=OnceBroken()), run(task=Walk())
    assert not failures(healed)
    assert sum(e.kind == "retry" for t in healed for e in t.events) == len(OnceBroken.seen) > 0
    assert [n.actions.tolist() for _, n in healed.nodes()] == [n.actions.tolist() for _, n in plain.nodes()]


def test_an_engine_that_dies_in_flight_fails_what_it_was_writing():
    ticks = itertools.count()

    async def die():
        if next(ticks) == 3:
            raise OSError("the device is lost")
        await asyncio.sleep(0)

    engine = TabularEngine(lambda p: [1.0] + [0.0] * 25, Letters(CODEC.alphabet), pace=die)
    budget = Budget()
    forest = run(engine=engine, budget=budget, patience=Patience(tries=1))
    assert {leaf.status for _, leaf in forest.leaves()} == {"failed"}
    assert failures(forest)[0][0] == "the engine: OSError: the device is lost"
    assert all(budget.held(r) == 0 for r in RESOURCES)


def test_an_engine_that_recovers_is_asked_again_with_the_same_seed():
    class Hiccup(Wrapped):
        asked = 0

        def submit(self, request):
            self.asked += 1
            if self.asked % 2:
                raise BlockingIOError("busy")
            return self.inner.submit(request)

    healed, plain = run(engine=Hiccup(tiny_engine())), run()
    assert sum(e.kind == "retry" for t in healed for e in t.events) == 6
    assert [n.actions.tolist() for _, n in healed.nodes()] == [n.actions.tolist() for _, n in plain.nodes()]


def test_a_request_that_can_never_fit_is_not_tried_again():
    class Small(Wrapped):
        asked = 0

        def submit(self, request):
            self.asked += 1
            raise EngineError("a prefix of 9 tokens leaves no room")

    engine = Small(tiny_engine())
    assert len(failures(run(engine=engine))) == engine.asked == 6


@pytest.mark.parametrize(
    ("sample", "why"),
    [
        (lambda n: (np.zeros(n + 1, np.int32), np.zeros(n + 1, np.float32)), "returned 17 tokens where at most 16"),
        (lambda n: (np.zeros(n, np.int32), np.zeros(n - 1, np.float32)), "16 tokens with 15 logp"),
    ],
)
def test_an_engine_that_breaks_its_contract_is_caught(sample, why):
    class Liar(Wrapped):
        def submit(self, request):
            ids, logp = sample(request.sampling.max_tokens)

            class Run:
                def __await__(self):
                    yield
                    return Sample(ids, logp, logp, ids, "length")

                def stop(self, finish="abort"):
                    raise AssertionError

            return Run()

    budget = Budget()
    forest = run(engine=Liar(tiny_engine()), budget=budget)
    assert all(why in text for text, _ in failures(forest))
    assert len(failures(forest)) == 6
    assert budget.spent.decoded == 0


def test_a_crash_in_one_tree_fails_that_tree_alone():
    class Unlucky:
        needs = frozenset()

        async def grow_tree(self, tree, hand):
            await play(hand, tree.root)
            if tree.id.endswith("1"):
                async with asyncio.TaskGroup() as group:
                    group.create_task(play(hand, tree.root))
                    await asyncio.sleep(0)
                    raise LookupError("no such sibling")

    forest = run(Unlucky(), n=3)
    failed = [tree for tree in forest if "failed" in tree.notes]
    assert [tree.id for tree in failed] == ["train-0-1"]
    assert failed[0].notes["failed"] == "LookupError: no such sibling"
    assert [leaf.status for leaf in failed[0].leaves()] == ["done", "failed"]
    assert all(leaf.status == "done" for tree in forest for leaf in tree.leaves() if tree not in failed)


def test_cancelling_keeps_what_was_written_and_it_can_be_resumed():
    async def go():
        forest, budget, task = Forest(), Budget(), SpellTask()
        items = list(itertools.islice(task.items("train"), 2))
        engine = endless()
        running = asyncio.ensure_future(grow(Independent(2), engine, task, items, budget=budget, forest=forest))
        for _ in range(8):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        leaves = [leaf for _, leaf in forest.leaves()]
        assert [leaf.status for leaf in leaves] == ["paused"] * 4
        assert all(0 < len(leaf) < 16 for leaf in leaves)
        assert budget.spent.decoded == sum(map(len, leaves))
        budget.check()
        await grow(Independent(3), engine, task, items, forest=forest)
        assert [len(tree.leaves()) for tree in forest] == [3, 3]
        assert [(len(leaf), leaf.finish, leaf.scores["reward"]) for leaf in leaves] == [(16, "length", 1.0)] * 4

    asyncio.run(go())


def test_a_deadline_stops_what_is_in_flight_and_keeps_it():
    now = [0.0]

    async def tick():
        now[0] += 1.0
        await asyncio.sleep(0)

    async def go():
        loop = asyncio.get_running_loop()
        loop.time = lambda: now[0]
        engine = TabularEngine(lambda p: [1.0] + [0.0] * 25, Letters(CODEC.alphabet), pace=tick)
        items = list(itertools.islice(SpellTask().items("train"), 2))
        return await grow(Independent(2), engine, SpellTask(), items, budget=Limits(seconds=5), clock=lambda: now[0])

    forest = asyncio.run(go())
    leaves = [leaf for _, leaf in forest.leaves()]
    assert {leaf.finish for leaf in leaves} == {"budget"}
    assert all(0 < len(leaf) < 16 for leaf in leaves)
    assert {leaf.status for leaf in leaves} == {"done"}


def test_a_prompt_that_fills_the_context_is_refused_before_the_first_token():
    item = Item("long", "a" * 4096, "a")
    with pytest.raises(ItemError, match=r"prompt of item 'long' has 4096 tokens.*context of 4096"):
        asyncio.run(grow(Independent(), tiny_engine(), SpellTask(), [item]))


def test_an_item_without_an_answer_is_asked_and_never_trained_on():
    item = Item("open", "ab", None)
    forest = asyncio.run(grow(Independent(2), tiny_engine(), SpellTask(), [item]))
    assert {leaf.status for _, leaf in forest.leaves()} == {"done"}
    assert not any("reward" in leaf.scores for _, leaf in forest.leaves())
    with pytest.raises(ItemError, match="item 'open' has no answer"):
        check_item(item, tiny_engine())


def test_unmet_needs_name_both_parts_before_the_first_token():
    with pytest.raises(
        NeedsError, match=re.escape("Independent needs 'top:99', which the engine TabularEngine does not")
    ):
        run(Independent(needs=frozenset({"top:99", "entropy:full"})))
    with pytest.raises(NeedsError, match="needs 'snapshot', but the task 'tiny-spell' has no environment"):
        run(Independent(needs=frozenset({"snapshot"})))
    with pytest.raises(TypeError, match="int is no strategy"):
        run(3)


def test_an_episode_cancelled_while_the_environment_answers_goes_on_with_that_answer():
    class Slow(Walk):
        async def step(self, item, state, text):
            for _ in range(40):
                await asyncio.sleep(0)
            return await super().step(item, state, text)

    async def go():
        forest, task = Forest(), Slow()
        items = list(itertools.islice(task.items("train"), 4))
        running = asyncio.ensure_future(grow(Independent(2), tiny_engine(), task, items, forest=forest))
        for _ in range(60):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        paused = [(tree, leaf) for tree, leaf in forest.leaves() if leaf.status == "paused"]
        assert "stop" in {leaf.finish for _, leaf in paused}
        hand = open_hand(tiny_engine(), task, forest=forest)
        asked = {item.id: item for item in items}
        for tree, leaf in paused:
            hand.adopt(tree, asked[tree.item])
            before = tree.prefix(leaf).tolist()
            end = await proceed(hand.on(tree), leaf)
            assert end.status == "done"
            assert "reward" in end.scores
            assert tree.prefix(end)[: len(before)].tolist() == before
        return forest

    forest = asyncio.run(go())
    whole = run(Independent(2), task=Walk(), n=4)
    assert {t.id: len(t.leaves()) for t in forest} == {t.id: len(t.leaves()) for t in whole}
