"""The search primitive on exact worlds: reservations, order, schedules, queues, backups, triggers, references."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolltree.generate.search.backup import Backup, Blend, MeanBackup, tell
from rolltree.generate.search.graph import Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import Moment, search
from rolltree.generate.search.queues import BestFirst, Stack, Switch, TopK, flattest
from rolltree.generate.search.select import UCT, ComposedMove, Descend, ScheduleRamp, Select, once, only, up_to
from rolltree.tree import Tree
from rolltree.tree.references import REFERENCES, refer, references
from rolltree_papers.mcgs import branch_stagnant, stagnant


def rng(turn: int) -> np.random.Generator:
    return np.random.default_rng(turn)


def moment(graph: SearchGraph[Any], turn: int = 0, progress: float = 0.0) -> Moment[Any]:
    return Moment(graph, rng(turn), turn, progress)


def planted(*values: float, parent: SearchNode[str] | None = None, graph: SearchGraph[str] | None = None) -> Any:
    """A graph with children of these values below its root (or below a node)."""
    made = graph or SearchGraph("root")
    move = Move(parent or made.root, "make")
    nodes = [made.add(move, Made(str(v), v)) for v in values]
    return made, nodes


@dataclass
class World:
    """Numbers as payloads: a child is worth its parent's number plus one of its own; slow turns end late."""

    delays: Sequence[float] = ()
    running: int = 0
    most: int = 0
    made: int = 0

    async def make(self, moves: Sequence[Move[float]]) -> Sequence[Sequence[Made[float]]]:
        number, self.made = self.made, self.made + 1
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(int(self.delays[number % len(self.delays)]) if self.delays else 0):
            await asyncio.sleep(0)
        self.running -= 1
        out = []
        for move in moves:
            draws = np.random.default_rng(number).uniform(size=move.ways)
            out.append([Made(float(d), (move.node.value or 0.0) / 2 + float(d) / 2, cost=1) for d in draws])
        return out


def grown(select: Select, world: World, turns: int, workers: int = 1, ways: int = 1,
          backup: Backup | None = None) -> SearchGraph[float]:  # fmt: skip
    plan = ComposedMove(select, only("make", ways), backup or MeanBackup())
    graph: SearchGraph[float] = SearchGraph(0.0)
    return asyncio.run(search(plan, graph, world.make, turns=turns, rng=rng, workers=workers))


def shape(graph: SearchGraph[float]) -> list[tuple[int | None, float]]:
    return [(None if n.parent is None else n.parent.id, n.payload) for n in graph]


@given(st.integers(1, 6), st.lists(st.integers(0, 7), min_size=1, max_size=6))
def test_how_fast_turns_are_changes_nothing(workers: int, delays: list[int]) -> None:
    """Results are taken in the order in which turns began: any engine gives the same search."""
    quick, slow = World(), World(delays)
    same = grown(Descend(up_to(3)), quick, 24, workers)
    assert shape(grown(Descend(up_to(3)), slow, 24, workers)) == shape(same)
    assert slow.most <= workers


def test_workers_really_work_at_once_and_reserve_what_they_work_at() -> None:
    world = World([5])
    graph = grown(Descend(up_to(2)), world, 20, workers=4)
    assert world.most == 4
    assert max(len(n.children) for n in graph) == 2, "what is under way counts as made"
    assert all(n.pending == n.making == 0 for n in graph)


def test_reservations_send_the_next_worker_elsewhere() -> None:
    graph, (good, fair) = planted(0.6, 0.5)
    tell(good, 0.6)
    tell(fair, 0.5)
    select = Descend(lambda n: 0 if n is graph.root else 5, UCT(0.2))
    assert select(moment(graph)) is good
    graph.reserve(Move(good, "make"))
    assert select(moment(graph)) is fair, "a result under way counts as lost until it is there"
    graph.release(Move(good, "make"))
    assert select(moment(graph)) is good


@pytest.mark.parametrize("workers", [1, 3])
def test_means_are_those_of_the_subtree(workers: int) -> None:
    graph = grown(Descend(up_to(3)), World(), 40, workers)
    for node in graph:
        told = [n.value for n in node.below() if n.parent is not None]
        assert node.visits == len(told)
        if told:
            assert node.mean == pytest.approx(np.mean([v for v in told if v is not None]))


def test_comp_keeps_half_of_the_first_estimate_and_children_forget_it() -> None:
    for share, expected in ((0.5, 0.5 * 0.9 + 0.5 * 0.1), (1.0, 0.1)):
        graph, (first,) = planted(0.9)
        rule = Blend(share)
        rule(graph, Move(graph.root, "make"), [first])
        _, (below,) = planted(0.1, parent=first, graph=graph)
        rule(graph, Move(first, "make"), [below])
        assert first.mean == pytest.approx(expected)


def test_uct_is_its_formula_and_the_prior_fades() -> None:
    graph, (node, fresh) = planted(0.5, 0.0)
    node.prior, fresh.prior = 0.9, 0.7
    for _ in range(4):
        tell(node, 0.25)
    now = moment(graph)
    assert UCT(2.0)(graph.root, node, now) == pytest.approx(0.25 + 2 * math.sqrt(math.log(4) / 4))
    assert UCT(2.0)(graph.root, fresh, now) == math.inf
    w = 0.2 / 4.2
    blended = w * 0.9 + (1 - w) * 0.25 + 2 * math.sqrt(math.log(4) / 4)
    assert UCT(2.0, prior=0.2, unvisited=0.2)(graph.root, node, now) == pytest.approx(blended)
    untried = 0.7 + 2 * math.sqrt(math.log(4) / 0.2)
    assert UCT(2.0, prior=0.2, unvisited=0.2)(graph.root, fresh, now) == pytest.approx(untried)


def test_constants_follow_the_budget() -> None:
    ramp = ScheduleRamp(1.4, 0.4, 0.25, 0.75)
    assert [ramp.at(p) for p in (0.0, 0.25, 0.5, 0.75, 1.0)] == pytest.approx([1.4, 1.4, 0.9, 0.4, 0.4])
    assert [ScheduleRamp(1.0, 0.0, 0.5, 0.5).at(p) for p in (0.4, 0.5)] == [1.0, 0.0]


def test_a_queue_takes_the_best_anywhere_and_a_stack_goes_down_first() -> None:
    graph, (a, b) = planted(0.4, 0.8)
    planted(0.9, parent=a, graph=graph)
    room = once(2)
    assert BestFirst(room)(moment(graph)).value == 0.9  # type: ignore[union-attr]
    assert Stack(room)(moment(graph)) is b, "the best child of the root, which has none below yet"
    assert Stack(room, go_on=lambda n: n is not b)(moment(graph)).value == 0.9  # type: ignore[union-attr]


def test_a_closed_node_is_passed_by_and_a_full_tree_ends_the_search() -> None:
    graph = grown(Descend(up_to(2, depth=2)), World(), 100)
    assert len(graph) == 1 + 2 + 4
    _, (a, b) = planted(0.1, 0.2, graph=(small := SearchGraph("root")))
    a.closed = b.closed = small.root.closed = True
    assert Descend(up_to(9))(moment(small)) is None


def test_the_best_few_are_drawn_by_rank_and_bounded_per_branch() -> None:
    graph, (left, right) = planted(0.1, 0.2)
    planted(0.9, 0.8, 0.7, parent=left, graph=graph)
    planted(0.6, parent=right, graph=graph)
    assert [n.value for n in graph.ranked(5, per_branch=2)] == [0.9, 0.8, 0.6, 0.2]
    rule = TopK(Descend(up_to(9)), k=3, per_branch=2)
    drawn = [rule(moment(graph, turn)).value for turn in range(3000)]  # type: ignore[union-attr]
    share = [drawn.count(v) / 3000 for v in (0.9, 0.8, 0.6)]
    assert share == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.03)


def test_the_switch_goes_from_one_rule_to_the_other_by_share_of_the_budget() -> None:
    graph, (a, b) = planted(0.1, 0.2)
    rule = Switch(lambda m: a, lambda m: b, ScheduleRamp(1.0, 0.2, 0.5, 0.7))
    assert {rule(moment(graph, t, 0.4)) for t in range(50)} == {a}
    late = [rule(moment(graph, t, 0.9)) for t in range(2000)]
    assert late.count(a) / 2000 == pytest.approx(0.2, abs=0.03)
    assert Switch(lambda m: None, lambda m: b, ScheduleRamp(1.0, 1.0))(moment(graph)) is b


def test_the_flat_argmax_looks_over_the_whole_tree() -> None:
    graph, (a, _) = planted(0.4, 0.8)
    planted(0.9, parent=a, graph=graph)
    for node in graph.nodes[1:]:
        tell(node, node.value or 0.0)
    graph.root.closed = True
    assert flattest(up_to(1), UCT(0.0))(moment(graph)).value in (0.8, 0.9)  # type: ignore[union-attr]


def test_stagnation_is_of_the_last_nodes_against_what_stood_before() -> None:
    graph, _ = planted(0.5)
    top = graph.root.children[0]
    planted(0.9, 0.6, 0.7, parent=top, graph=graph)
    assert not branch_stagnant(graph, top, 3), "the best is among the last three"
    planted(0.8, parent=top, graph=graph)
    assert branch_stagnant(graph, top, 3)
    planted(0.9, parent=top, graph=graph)
    assert not branch_stagnant(graph, top, 3), "reaching the best is enough"
    assert stagnant(graph, 3)
    planted(0.95, graph=graph)
    assert not stagnant(graph, 3)


def test_nothing_is_told_along_references() -> None:
    graph, (a, b) = planted(0.4, 0.8)
    made = graph.add(Move(a, "fuse", (b,)), Made("both", 1.0))
    MeanBackup()(graph, Move(a, "fuse", (b,)), [made])
    assert (a.visits, b.visits, graph.root.visits) == (1, 0, 1)
    assert made.references == (b,)


def test_references_survive_storing_copying_and_merging(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from rolltree.control.brief import Laid
    from rolltree.control.order import Order
    from rolltree.rollout.group_builder import absorb
    from rolltree.tree import Forest
    from rolltree.tree.store import jsonl, parquet

    def fresh(name: str) -> Tree:
        tree = Tree(name, [1, 2])
        a = tree.extend(tree.root, [3])
        b = tree.extend(tree.root, [4])
        refer(tree.extend(a, [5]), [b, a, b])
        return tree

    forest = Forest([fresh("t")])
    back = jsonl.parse(list(jsonl.lines(forest)))["t"]
    parquet.save(forest, tmp_path / "f")
    for tree in (forest["t"], back, parquet.load(tmp_path / "f")["t"]):
        last = next(n for n in tree if REFERENCES in n.notes)
        assert [int(n.actions[0]) for n in references(tree, last)] == [4, 3]
    into = fresh("u")
    absorb(into, fresh("v"), Order("p", 2), Laid(into.root.actions, {}))
    for node in into:
        if REFERENCES in node.notes:
            assert [int(n.actions[0]) for n in references(into, node)] == [4, 3]
            assert {n.id < 4 for n in references(into, node)} == {node.id < 4}, "each refers within what came with it"
    copy = into.graft(into.root, fresh("w"), 1)
    assert [int(n.actions[0]) for n in references(into, into[copy.children[0]])] == [3], "what stayed behind is dropped"
