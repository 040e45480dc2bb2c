"""What `weboperator` promises beside what all of its kind do."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

from rolltree.engine.tabular import TabularEngine
from rolltree.generate.runner import grow
from rolltree.generate.search.graph import TRIED, Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import Moment
from rolltree.generate.search.proposals import (
    COUNT,
    DESTRUCTIVE,
    ENDED,
    KIND,
    NAME,
    ProposalRules,
)
from rolltree.tree import Forest
from rolltree_papers.weboperator import AGREED, FULL, VOID, ActionQueue, OperatedActions, OperatorRules
from tests.generate.search.test_actions import LETTERS, Shop, name


class Queue:
    """A queue whose actions are done by hand."""

    def __init__(self, **rules: Any) -> None:
        self.given: list[tuple[str, str]] = []
        self.plan = ActionQueue(OperatorRules(**rules), lambda n, why: self.given.append((n.notes[NAME], why)))
        self.graph: SearchGraph[str] = SearchGraph("")

    def next(self) -> SearchNode[str] | None:
        moves = self.plan.moves(Moment(self.graph, None))  # type: ignore[arg-type]
        return moves[0].node if moves else None

    def do(self, *proposed: tuple[Any, ...], **notes: Any) -> SearchNode[str]:
        """Do what is next; (name, score, kind, count) are proposed there."""
        node = self.next()
        assert node is not None
        out = [] if node.parent is None else [Made(node.payload, here=True, notes={TRIED: True, **notes})]
        for named, score, *more in proposed:
            kind, count = (*more, *("plain", 1)[len(more) :])
            out.append(Made(named, None, score, notes={NAME: named, KIND: kind, COUNT: count}))
        move = Move(node, "do")
        self.plan.backup(self.graph, move, [self.graph.add(move, made) for made in out])
        return node


def test_ends_wait_for_a_second_one_and_what_cannot_be_undone_for_everything_else() -> None:
    q = Queue()
    q.do(("end", 0.9, "terminating"), ("delete", 0.8, "destructive"), ("look", 0.1))
    assert name(q.do()) == "look", "the worst plain action comes before a likely end"
    assert name(q.next()) == "end", "before a deletion the episode is ended instead"
    q = Queue()
    q.do(("end", 0.2, "terminating"), ("look", 0.9))
    q.do(("finish", 0.5, "terminating"), ("go", 0.9))
    assert name(q.next()) == "finish", "two ends are known: the best of them"
    q = Queue()
    q.do(("delete", 0.8, "destructive"), ("look", 0.1))
    q.do()
    assert name(q.next()) == "delete", "nothing else is left"


def test_after_a_deletion_all_that_was_proposed_before_is_void_and_the_queue_is_shorter() -> None:
    q = Queue(queue=3)
    q.do(("shop", 0.9), ("help", 0.4))
    q.do(("buy", 0.3), **{DESTRUCTIVE: True})
    assert q.given == [("help", VOID)]
    assert name(q.do(("a", 0.3), ("b", 0.2), ("c", 0.1))) == "buy"
    assert q.given[1:] == [("c", FULL)], "two wait where three did"


def test_a_kind_that_was_seen_goes_before_one_that_was_said() -> None:
    q = Queue()
    q.do(
        ("save", 0.9, "destructive"),
    )
    q.do(("on", 0.1), **{DESTRUCTIVE: False})
    assert not q.plan.destroyed
    q = Queue()
    q.do(
        ("save", 0.9, "destructive"),
    )
    q.do(("on", 0.1))
    assert q.plan.destroyed == 1, "nobody saw what it did"


def test_all_that_agree_on_the_end_end_it() -> None:
    q = Queue()
    q.do(("a", 0.9), ("b", 0.8))
    q.do(("end", 0.1, "terminating", 3))
    assert q.given == [("b", AGREED)]
    assert name(q.do(**{ENDED: True})) == "end"
    assert q.next() is None
    q = Queue()
    q.do(("a", 0.9), ("b", 0.8))
    q.do(("end", 0.1, "terminating", 1))
    assert name(q.next()) == "b", "one vote is no agreement"


def test_a_full_queue_keeps_one_of_a_kind_drops_copies_and_then_the_worst() -> None:
    q = Queue(queue=3)
    q.do(("e1", 0.9, "terminating"), ("e2", 0.8, "terminating"), ("a", 0.5), ("b", 0.2), ("c", 0.1))
    assert q.given == [("e2", FULL), ("c", FULL)]
    q = Queue(queue=2)
    q.do(("a", 0.9), ("b", 0.5))
    q.do(("b", 0.6), ("c", 0.1))
    assert q.given == [("b", FULL)], "the same action a second time goes before a worse one"
    assert [name(n) for n in q.plan.queue(q.graph)] == ["b", "c"]


def test_equal_scores_are_told_apart_by_how_many_proposed_them() -> None:
    q = Queue()
    q.do(("a", 0.5, "plain", 1), ("b", 0.5, "plain", 2))
    assert name(q.next()) == "b"


def test_at_the_last_step_only_an_end_is_done() -> None:
    q = Queue(steps=1, solutions=9, late=2.0)
    q.do(("a", 0.9), ("end", 0.1, "terminating"))
    q.do(("b", 0.9))
    assert name(q.next()) == "end"
    q = Queue(steps=1)
    q.do(("a", 0.9))
    q.do(("b", 0.9))
    assert q.next() is None


def shopper() -> TabularEngine:
    """Proposes the next letter, or another one, or x, s and d."""

    def row(prefix: tuple[int, ...]) -> list[float]:
        out = [0.0] * len(LETTERS.alphabet)
        if prefix[-1] < 6:
            out[7] = 1.0
            return out
        # As a policy that reads its own actions: what was done is what stands before.
        done = sum(1 for i, t in enumerate(prefix) if t < 3 and t == sum(1 for u in prefix[:i] if u < 3))
        out[5 if done >= 3 else done] = 0.5
        for other in (3, 4, 5 if done < 3 else 0):
            out[other] += 0.5 / 3
        return out

    return TabularEngine(row, LETTERS)


def shopped(items: int = 40, **rules: Any) -> Forest:
    task = Shop()
    strategy = OperatedActions(OperatorRules(**rules), ProposalRules(4))
    return asyncio.run(grow(strategy, shopper(), task, islice(task.items("test"), items), seed=2))


def test_in_an_environment_nothing_possible_is_missed_nothing_impossible_is_done() -> None:
    merged = right = deleted = 0
    for tree in shopped():
        told = next(e for e in tree.events if e.why == "actions by the queue")
        merged += told.numbers["merged"]
        deleted += told.numbers["destructive"]
        right += tree.notes.get("answer") == "abc"
        for node in tree:
            if node.role == "policy" and LETTERS.decode(node.actions).startswith("d"):
                assert node.status == "pruned"
                assert not tree.children(node)
            assert node.status != "open" or not node.is_leaf, "what nobody did was given up"
        for node in (n for n in tree if n.scores.get(DESTRUCTIVE)):
            later = [e for e in tree.events if e.kind == "act" and e.node is not None and e.node > node.id]
            below = {n.id for n in tree.walk(node)}
            assert all(e.node in below for e in later), "after a deletion nothing is done elsewhere"
    assert merged
    assert right > 10
    assert deleted < 10
