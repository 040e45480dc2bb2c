"""EvoGit's population: who takes whose place, drift at a judge of one half, merges where blocks are separable."""

from __future__ import annotations

import numpy as np

from rolltree.generate.search.graph import Made, Move, SearchGraph
from rolltree.generate.search.loop import Moment
from rolltree_papers.evogit import BETTER, EvoGit, EvoGitRules, novel
from rolltree_papers.evogit.study import run


def planted(rules: EvoGitRules) -> tuple[EvoGit, SearchGraph[str]]:
    plan, graph = EvoGit(rules), SearchGraph("")
    for move in plan.moves(Moment(graph, np.random.default_rng(0), 0)):
        plan.backup(graph, move, [graph.add(move, Made("draft"))])
    return plan, graph


def test_an_edit_takes_its_parents_place_only_where_it_is_preferred() -> None:
    plan, graph = planted(EvoGitRules(2, 3))
    a, b = plan.alive
    for node, better in ((a, True), (b, False)):
        move = Move(node, "mutate")
        plan.backup(graph, move, [graph.add(move, Made("new", notes={BETTER: better}))])
    assert plan.alive[0].parent is a
    assert plan.alive[1] is b


def test_a_merge_takes_both_places_and_nothing_is_merged_with_what_it_was_made_of() -> None:
    plan, graph = planted(EvoGitRules(2, 3))
    a, b = plan.alive
    (move,) = plan.moves(Moment(graph, np.random.default_rng(0), 3))
    assert move.operator == "merge"
    plan.backup(graph, move, [made := graph.add(move, Made("both", notes={BETTER: True}))])
    assert plan.alive == [made, made]
    assert not novel(made, a)
    assert not novel(b, made), "a reference is an ancestor too"
    assert [m.operator for m in plan.moves(Moment(graph, np.random.default_rng(0), 6))] == ["mutate", "mutate"]


def test_a_judge_that_knows_nothing_drifts_and_merges_gain_on_separable_landscapes() -> None:
    def mean(k: int, accuracy: float, every: int) -> float:
        return float(np.mean([run(k, accuracy, s, every=every, generations=30, population=8)[0] for s in range(12)]))

    assert abs(mean(0, 0.5, 0) - 0.5) < 0.08
    assert mean(0, 1.0, 0) > 0.7
    assert mean(0, 1.0, 3) > mean(0, 1.0, 0) + 0.02
