"""CodeTree with known chances: it wins where strategies differ, and nothing where nothing is better than drawing."""

from __future__ import annotations

import asyncio

import pytest

from rolltree.generate.search.graph import Made, SearchGraph, SearchNode
from rolltree_papers.codetree import CodeTree, CodeTreeRules
from rolltree_papers.codetree.study import ARMS, Coding, Editor, found, rates


class Scripted:
    """Shares of tests passed and critic's grades in the order of writing."""

    def __init__(self, passed: list[float], grades: list[float], ideas: int = 1) -> None:
        self.passed, self.grades, self.ideas = iter(passed), iter(grades), ideas
        self.wrote: list[str] = []

    async def strategies(self, most: int) -> list[str]:
        return ["A", "B", "C"][:most]

    async def write(self, node: SearchNode[str]) -> Made[str] | None:
        self.wrote.append(node.payload)
        share = next(self.passed, None)
        return None if share is None else Made(node.payload, share)

    async def review(self, made: Made[str]) -> float:
        return next(self.grades)

    async def reflect(self, made: Made[str], most: int) -> list[str]:
        return [f"{made.payload}{i}" for i in range(1, min(self.ideas, most) + 1)]


def run(rules: CodeTreeRules, coder: Scripted) -> tuple[CodeTree[str], SearchGraph[str]]:
    from rolltree.generate.search.loop import search

    plan = CodeTree(rules, coder)
    graph: SearchGraph[str] = SearchGraph("")
    import numpy as np

    asyncio.run(search(plan, graph, plan.make, turns=50, rng=np.random.default_rng))
    return plan, graph


def test_the_first_strategy_is_followed_down_before_the_second_is_tried() -> None:
    coder = Scripted([0.2, 0.4, 0.6, 0.1, 0.3], [0.0] * 9)
    run(CodeTreeRules(3, 3), coder)
    assert coder.wrote[:5] == ["A", "A1", "A11", "B", "B1"]


def test_a_value_is_r_plus_s_over_15_and_a_line_that_falls_behind_is_given_up() -> None:
    coder = Scripted([0.4, 0.2, 0.4, 0.4], [1.0, 1.0, 0.2, 0.2])
    _, graph = run(CodeTreeRules(3, 3), coder)
    assert coder.wrote[:4] == ["A", "A1", "B", "B1"], "0.2 + 5/15 is less than 0.4 + 5/15"
    values = {n.payload: n.value for n in graph if n.value is not None}
    assert [values["A"], values["A1"]] == pytest.approx([0.4 + 5 / 15, 0.2 + 5 / 15])
    again = Scripted([0.4, 0.4, 0.4, 0.4], [0.2, 0.2, 0.2, 0.2])
    run(CodeTreeRules(1, 3), again)
    assert again.wrote == ["A", "A1"], "as much as before, deeper than the critic's score of 1"


def test_what_passes_is_accepted_by_the_critic_or_when_it_passes_twice_at_the_bottom() -> None:
    plan, _ = run(CodeTreeRules(2, 3), Scripted([1.0], [1.0]))
    assert plan.accepted is not None
    plan, graph = run(CodeTreeRules(1, 2), Scripted([1.0, 1.0], [0.0, 0.0]))
    assert plan.accepted is not None
    assert plan.accepted.depth == 2
    assert graph.nodes[1].value == pytest.approx(1 + 5 / 15)


def test_it_wins_where_strategies_differ_and_not_where_drawing_is_all_there_is() -> None:
    seeds = range(250)
    assert rates("CodeTree", Editor(), seeds)[0] > rates("independent", Editor(), seeds)[0] + 0.2
    equal = Editor((0.5,) * 5, None)
    gap = rates("CodeTree", equal, seeds)[0] - rates("independent", equal, seeds)[0]
    assert gap < 0, "reviews and reflections cost calls, and give nothing there"


def test_all_arms_have_as_many_calls_and_only_the_tree_leaves_a_strategy() -> None:
    for rules in ARMS.values():
        rows = [found(rules, Editor(), seed, calls=30) for seed in range(40)]
        assert 27 < max(row.calls for row in rows) <= 30
        assert all(row.written < row.calls for row in rows)
    assert {found(ARMS["one line"], Editor(), seed).strategies for seed in range(40)} == {1}
    assert asyncio.run(Coding(Editor(), 1).strategies(3)) != asyncio.run(Coding(Editor(), 2).strategies(3))
