"""Plans and executions, and turns cut into segments."""

from __future__ import annotations

import asyncio
from itertools import islice

from rolltree.contract.strategy import check_strategy
from rolltree.contract.tiny import SpellTask, Walk, tiny_engine
from rolltree.generate.independent import Independent
from rolltree.generate.methods.hiper import SubgoalTurns
from rolltree.generate.plans import PlanExecute
from rolltree.generate.runner import grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.task.protocol import Item, Reply, Task
from rolltree.tree import Forest


class Paid(Walk):
    """A walk that pays for cell 5."""

    async def step(self, item: Item, state: int, text: str) -> Reply:
        reply = await Walk.step(self, item, state, text)
        return Reply(reply.text, reply.state, reply.done, float(reply.state == 5), reply.state_key)


def grown(strategy: TreeStrategy, task: Task, n: int = 6) -> Forest:
    return asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("train"), n)))


def test_plans_and_segments_keep_the_strategy_contract() -> None:
    check_strategy(PlanExecute(2, 2, turns=2, stop=("e", "f", "g")))
    check_strategy(SubgoalTurns(Independent(3)))


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


def test_a_segment_begins_where_the_environment_has_paid() -> None:
    seen = set()
    for tree in grown(SubgoalTurns(Independent(6)), Paid()):
        for node in tree:
            if node.role != "policy" or not len(node):
                continue
            before = tree[node.parent or 0]
            begins = before.parent is None or before.scores["step_reward"] == 1.0
            assert node.scores["switch"] == float(begins)
            assert node.notes["spans"] == {"action": (0, len(node))}
            seen.add((begins, before.parent is None))
    assert len(seen) == 3
