"""Explorations: where paths start and end, what stays open, and the same in a real environment."""

from __future__ import annotations

import asyncio
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest

from rolltree.analysis.step_rows import RowRules, dpo_rows
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.runner import grow
from rolltree.generate.search.graph import TRIED, Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import search
from rolltree.generate.search.proposals import ProposalRules
from rolltree.testing.tiny import CODEC, Walk, tiny_engine
from rolltree.tree import Forest
from rolltree_papers.treecua import UNEXPLORED, Exploration, ExploredActions, ExploreRules


def run(order: Any, paths: int, steps: int = 4, wrong: Any = lambda node: False) -> tuple[SearchGraph[int], list[Any]]:
    """An exploration that proposes two actions everywhere; moves in the order in which they were made."""
    done: list[tuple[SearchNode[int], str]] = []

    async def make(moves: Any) -> Any:
        (move,) = moves
        done.append((move.node, move.operator))
        over = wrong(move.node) or move.node.depth >= steps
        here = [] if move.node.parent is None else [Made(0, closed=over, here=True, notes={TRIED: True})]
        return [[*here, *([] if over else [Made(0), Made(0)])]]

    graph: SearchGraph[int] = SearchGraph(0)
    plan = Exploration(ExploreRules(paths, steps, order=order))
    asyncio.run(search(plan, graph, make, turns=1000, rng=np.random.default_rng))
    return graph, done[1:]


def test_a_path_goes_on_below_itself_until_it_is_long_enough_or_goes_wrong() -> None:
    _, done = run("random", 3)
    for (before, _), (after, operator) in pairwise(done):
        assert operator == "start" if before.depth == 4 else after.parent is before
    _, done = run("random", 3, wrong=lambda node: node.depth == 2)
    assert max(node.depth for node, _ in done) == 2


@pytest.mark.parametrize(("order", "depths"), [("deep", {3, 4}), ("shallow", {1, 2}), ("hybrid", {1, 2})])
def test_the_next_path_starts_where_the_order_says(order: str, depths: set[int]) -> None:
    _, done = run(order, 3, steps=4 if order != "hybrid" else 8)
    starts = [node.depth for node, operator in done if operator == "start"]
    assert starts[0] == 1
    assert set(starts[1:]) <= depths


def test_a_tree_is_over_when_nothing_is_open() -> None:
    graph, done = run("random", 1000, steps=3)
    assert len(graph) - 1 == len(done) == 2 + 4 + 8
    assert all(node.notes[TRIED] for node in graph)


def test_the_first_steps_are_the_widest() -> None:
    graph: SearchGraph[int] = SearchGraph(0)
    node, rules = graph.root, ExploreRules()
    widths: list[int] = []
    for _ in range(12):
        widths.append(rules.wide(node))
        node = graph.add(Move(node), Made(0))
    assert widths == [10, 10, *[6] * 8, 3, 3]


def explored(**knobs: Any) -> Forest:
    task = Walk()
    strategy = ExploredActions(ExploreRules(4, 3, (4, 3, 2)), ProposalRules(4, tries=0), **knobs)
    return asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("test"), 6), seed=4))


def test_in_an_environment_every_path_has_an_outcome_and_siblings_make_pairs() -> None:
    pairs = 0
    for tree in explored():
        told = next(e for e in tree.events if e.why == "explored").numbers
        ends = [n for n in tree.leaves() if n.status == "done"]
        assert 1 <= len(ends) <= told["paths"] <= 4
        assert all("reward" in n.scores for n in ends)
        assert all(sum(n.role == "env" for n in tree.path(leaf)) <= 3 for leaf in ends)
        assert any(e.why == UNEXPLORED for e in tree.events)
        assert not any(n.status == "open" and n.is_leaf for n in tree)
        pairs += len(list(dpo_rows(tree, CODEC.decode, RowRules(margin=0.1))))
    assert pairs


def test_a_judge_of_steps_ends_paths() -> None:
    forest = explored(grader=Confidence("step"), least=1.1)
    for tree in forest:
        ends = [n for n in tree.leaves() if n.status == "done"]
        assert all(sum(n.role == "env" for n in tree.path(leaf)) <= 1 for leaf in ends)
        told = next(e for e in tree.events if e.why == "explored").numbers
        assert told["went_wrong"]
