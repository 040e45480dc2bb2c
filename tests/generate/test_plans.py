"""Plans and executions, and turns cut into segments."""

from __future__ import annotations

import asyncio
from itertools import islice

import numpy as np
import pytest

from rolltree.credit.registry import load_credit
from rolltree.generate.plans import PlanExecute
from rolltree.generate.runner import grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.task.protocol import Task
from rolltree.testing.tiny import SpellTask, Walk, tiny_engine
from rolltree.tree import Forest
from rolltree.tree.table import table


def grown(strategy: TreeStrategy, task: Task, n: int = 6) -> Forest:
    return asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("train"), n)))


def test_each_plan_ends_at_its_boundary_and_is_executed() -> None:
    executed = 0
    for tree in grown(PlanExecute(3, 2, stop=tuple("abcdefghijkl")), SpellTask()):
        plans = [tree[i] for i in tree.root.children]
        assert len(plans) == 3
        assert all(plan.level == 1 and plan.actor == "planner" for plan in plans)
        for plan in plans:
            below = [tree[i] for i in plan.children]
            assert len(below) == (2 if plan.finish == "stop" and not plan.is_leaf else 0)
            assert all(run.level == 0 and run.scores.keys() >= {"reward"} for run in below)
            executed += len(below)
    assert executed


def test_in_an_environment_a_plan_is_so_many_turns() -> None:
    deep = 0
    for tree in grown(PlanExecute(2, 3, turns=2), Walk()):
        for leaf in tree.leaves():
            turns = [n.level for n in tree.path(leaf) if n.role == "policy"]
            assert turns == [1] * min(2, len(turns)) + [0] * max(0, len(turns) - 2)
            deep += len(turns) > 2
    assert deep


def test_plans_are_compared_under_one_greedy_executor() -> None:
    for tree in grown(PlanExecute(4, 5, stop=tuple("abcdefghijkl"), phase="macro"), SpellTask()):
        assert tree.root.scores["learns_micro"] == 0.0
        for plan in tree.children(tree.root):
            below = tree.children(plan)
            assert len(below) <= 1
            assert all(np.isnan(run.sampling_logprob).all() for run in below), "drawn greedily"


@pytest.mark.papers("himac")
def test_all_executions_of_the_best_plan_teach_and_nothing_else() -> None:
    fixed = 0
    for tree in grown(PlanExecute(4, 5, stop=tuple("abcdefghijkl"), phase="micro"), SpellTask(), n=12):
        taught = [leaf for leaf in tree.leaves() if not leaf.usage]
        chosen = next((e for e in tree.events if e.why == "the best plan is fixed"), None)
        if chosen is None:
            continue
        fixed += 1
        assert len(taught) == 5
        assert {leaf.parent for leaf in taught} == {chosen.node}
        assert not any(np.isnan(leaf.sampling_logprob).any() for leaf in taught if leaf.sampling_logprob is not None), (
            "sampled anew"
        )
        measured = [leaf for leaf in tree.leaves() if leaf.usage and leaf.parent != tree.root.id]
        assert chosen.numbers["earned"] == max(leaf.scores["reward"] for leaf in measured)
        credit = load_credit("himac")(table([tree]))
        assert credit.action is not None
        assert not credit.action.any(), "plans do not learn in this phase"
    assert fixed > 6
