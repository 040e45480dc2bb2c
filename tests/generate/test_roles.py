"""Role calls: side trees, books, seeds of their own, other models; and the methods that are made of them."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

import numpy as np
import pytest

from rolltree.control.brief import Brief, Slot, brief
from rolltree.control.ledger import Budget, Limits
from rolltree.engine.protocol import Engine, EngineError, Scored
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.hand import Hand
from rolltree.generate.independent import Independent
from rolltree.generate.judge.engine_judges import Likelihood, WrittenJudge
from rolltree.generate.judge.protocol import JudgeError, entries
from rolltree.generate.judge.votes import Votes
from rolltree.generate.random import Stream
from rolltree.generate.roles import RoleAnswer, is_side
from rolltree.generate.runner import grow, open_hand
from rolltree.generate.setting import HandError
from rolltree.generate.turns import play
from rolltree.task.protocol import Item
from rolltree.testing.strategy import shape
from rolltree.testing.tiny import CODEC, SpellTask, tiny_engine
from rolltree.tree import Forest, Node
from rolltree.tree.forest import assert_conserved
from rolltree.tree.node import Array
from studies.roles import ALONE, FOLLOWS, Echo, grown, reader, waves

ITEM = Item("q", "ab", "x")


def by_hand(use: Any, engine: Engine | None = None, budget: Budget | None = None, **more: Any) -> Hand:
    async def run() -> Hand:
        hand = open_hand(engine or tiny_engine(), SpellTask(), seed=3, budget=budget, **more)
        mine = hand.on(hand.plant(ITEM))
        await use(mine)
        return mine

    return asyncio.run(run())


def texts(said: list[RoleAnswer]) -> list[str]:
    return [one.text for one in said]


def test_what_a_role_says_stands_in_a_side_tree_and_in_its_own_book() -> None:
    async def use(hand: Hand) -> None:
        leaf = await play(hand, hand.tree.root)
        before = hand.budget.spent
        said = await hand.ask("critic", Brief((Slot("attempt", "xyx", ("q/1",)),)), about=[leaf], n=3, max_tokens=5)
        (tree,) = [t for t in hand.forest if is_side(t)]
        assert [s.tree for s in said] == [tree] * 3
        assert tree.notes["about"] == [f"q/{leaf.id}"]
        assert tree.notes["slots"] == [{"slot": "attempt", "span": [0, 3], "sources": ["q/1"]}]
        assert {n.actor for n in tree if n.role == "policy"} == {"critic"}
        assert all(len(s.node) <= 5 and s.node.status == "done" for s in said)
        now = hand.budget.spent
        assert now.decoded - before.decoded == sum(len(s.node) for s in said)
        assert now.leaves == before.leaves, "a role's answers are no rollouts"
        assert now.by_role["critic"] == now.decoded + now.prefilled - before.decoded - before.prefilled

    hand = by_hand(use)
    assert_conserved(hand.forest)
    hand.budget.check()


def test_the_same_question_goes_on_in_its_tree_and_another_place_has_another_stream() -> None:
    async def use(hand: Hand) -> None:
        one, two = [await play(hand, hand.tree.root) for _ in range(2)]
        first = await hand.ask("critic", brief("xyx"), about=[one], n=2)
        again = await hand.ask("critic", brief("xyx"), about=[one])
        other = await hand.ask("critic", brief("xyx"), about=[two])
        assert first[0].tree is again[0].tree is not other[0].tree
        assert len({*texts(first), *texts(again), *texts(other)}) > 2
        once.append([*texts(first), *texts(again)])
        at_once.append(texts(await hand.ask("poet", brief("xyx"), about=[one], n=3)))
        at_once.append(texts(await hand.ask("judge", brief("xyx"), about=[one], n=3)))

    once: list[list[str]] = []
    at_once: list[list[str]] = []
    by_hand(use)
    by_hand(use)
    assert once[0] == once[1], "the same seed says the same"
    assert at_once[0] != at_once[1], "another role draws otherwise"


def test_a_role_has_a_model_of_its_own_with_tokens_of_its_own() -> None:
    letters = Letters("zyxwvutsrqponmlkjihgfedcba.", eos_id=26)
    theirs = TabularEngine(lambda prefix: [1.0 if i == 0 else 0.0 for i in range(27)], letters)

    async def use(hand: Hand) -> None:
        (said,) = await hand.ask("teacher", brief("abc"), max_tokens=4)
        assert said.text == "zzzz"
        assert letters.decode(said.tree.root.actions) == "abc" != CODEC.decode(said.tree.root.actions)

    by_hand(use, roles={"teacher": theirs})


def test_an_empty_question_and_the_verdict_on_a_role_are_refused() -> None:
    async def use(hand: Hand) -> None:
        with pytest.raises(HandError, match="'critic' is asked nothing"):
            await hand.ask("critic", Brief())
        side = hand.side("critic", brief("x"))
        (node,) = await side.extend(side.tree.root, max_tokens=1)
        assert await side.verify(node) is None
        with pytest.raises(JudgeError, match="asks an engine, which a shaper cannot"):
            await Likelihood()(None, [], np.random.default_rng(0))

    by_hand(use)


def test_an_item_without_an_answer_may_stand_and_has_no_outcome() -> None:
    items = [Item("open", "ab", None)]
    forest = asyncio.run(grow(Independent(3), tiny_engine(), SpellTask(), items))
    assert all(leaf.status == "done" and "reward" not in leaf.scores for leaf in forest["open"].leaves())


def test_a_budgets_end_and_a_broken_engine_leave_answers_out_and_never_a_zero() -> None:
    async def poor(hand: Hand) -> None:
        assert 0 < len(await hand.ask("critic", brief("x"), n=9, max_tokens=4)) < 9
        assert await hand.ask("critic", brief("xyxyx")) == []
        leaf = hand.tree.extend(hand.tree.root, CODEC.encode("a"), status="done")
        assert await hand.judge(Likelihood(), [entries(hand, [leaf])], about="a leaf") == [None]

    by_hand(poor, budget=Budget(Limits(decoded=12, prefilled=2)))

    class Broken(TabularEngine):
        async def score(self, tokens: Array, start: int, want: frozenset[str] = frozenset()) -> Scored:
            raise EngineError("gone")

    async def broken(hand: Hand) -> None:
        leaf = await play(hand, hand.tree.root)
        said = await hand.judge(Votes(Likelihood(), order="given"), [entries(hand, [leaf, leaf])], about="a pair")
        assert said == [None]
        assert leaf.status == "done", "what broke is the judge's node, not the rollout"
        assert [n.status for t in hand.forest if is_side(t) for n in t.leaves()] == ["failed"]
        (event,) = [e for e in hand.tree.events if e.why == "judged a pair"]
        assert (event.numbers["failed"], event.numbers["abstained"]) == (1, 0)

    by_hand(broken, engine=Broken(lambda _: [1 / 27] * 27, CODEC))


def test_options_are_judged_by_the_likelihood_of_their_text() -> None:
    def likes(prefix: tuple[int, ...]) -> list[float]:
        row = [0.01] * 27
        row[0], row[1] = (0.5, 0.25) if prefix and prefix[-1] == 2 else (0.25, 0.5)
        return [p / sum(row) for p in row]

    async def use(hand: Hand) -> None:
        a, b = (hand.tree.extend(0, CODEC.encode(text), status="done") for text in ("a", "b"))
        for ask, better in (("c", 0), ("d", 1)):
            judge = Likelihood(ask)
            ((x, y),) = [o for o in await hand.judge(judge, [entries(hand, [a, b])], about="a pair") if o]
            assert (x > y) == (better == 0)
            assert max(x, y) / min(x, y) == pytest.approx(2.0)
        graded = Likelihood("{entry}c", options=("a", "b"))
        assert await hand.judge(graded, [entries(hand, [a])], about="a leaf") == [[pytest.approx(2 / 3)]]
        (tree, *_) = [t for t in hand.forest if is_side(t)]
        assert [n.notes["option"] for n in tree.leaves()] == ["a", "b"]

    by_hand(use, engine=TabularEngine(likes, CODEC))


@pytest.mark.parametrize(("says", "want"), [("x", [1.0, 0.0]), ("y", [0.0, 1.0]), ("b", None)])
def test_a_written_verdict_is_read_strictly(says: str, want: list[float] | None) -> None:
    engine = TabularEngine(lambda _: [float(CODEC.alphabet[i : i + 1] == says) for i in range(27)], CODEC)

    async def use(hand: Hand) -> None:
        pair = [hand.tree.extend(0, CODEC.encode(text), status="done") for text in ("ab", "cd")]
        judge = WrittenJudge("{entries}", ("x", "y"), entry="{word}{text}", stop=(), max_tokens=1)
        (said,) = await hand.judge(judge, [entries(hand, pair)], about="a pair")
        assert said is not None
        assert (said == want) if want else np.isnan(said).all()

    by_hand(use, engine=engine)


def last(forest: Forest) -> float:
    return float(np.mean([t.root.scores["last_wave"] for t in forest if not is_side(t)]))


def test_a_fresh_wave_profits_from_right_priors_and_not_from_wrong_ones() -> None:
    won, none = (last(grown(waves(4, q=1.0, show=s), 1, 40)) for s in ("winners", "none"))
    assert none == pytest.approx(ALONE, abs=0.14)
    some = 1 - (1 - ALONE) ** 4
    assert won == pytest.approx(some * FOLLOWS + (1 - some) * ALONE, abs=0.14)
    nobody = grown(waves(4, q=1.0), 1, 20, reader(alone=0.0))
    assert last(nobody) == 0.0, "digests of failed attempts alone help nobody"


def test_role_calls_grow_the_same_forest_in_any_order_of_service() -> None:
    def forest(shuffle: int | None) -> Forest:
        task = SpellTask()
        strategy = waves(4)
        return asyncio.run(grow(strategy, tiny_engine(shuffle=shuffle), task, islice(task.items("train"), 3), seed=1))

    one, two = forest(None), forest(7)
    assert {t.id for t in one} == {t.id for t in two}
    assert all(shape(tree) == shape(two[tree.id]) for tree in one)


def test_streams_of_side_trees_are_their_own() -> None:
    async def use(hand: Hand) -> None:
        side = hand.side("critic", brief("x"))
        assert isinstance(side.rng, Stream)
        assert side.rng.key != hand.rng.key
        task = Echo()
        assert task.name
        assert isinstance(hand.tree.root, Node)

    by_hand(use)
