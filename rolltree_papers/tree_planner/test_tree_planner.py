"""Tree-Planner in a real environment: plans by a role, one action per node, back with the state of then."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.runner import grow
from rolltree.task.protocol import Item, Reply, Split, Verdict
from rolltree.tree import Forest
from rolltree_papers.tree_planner import PlanTries

LETTERS = Letters("abc?.+")
LENGTH = 3


@dataclass(frozen=True, slots=True)
class House:
    """Do a, b, c in turn; anything else fails and changes nothing."""

    name: str = "house"
    level: int = 0
    stop: tuple[str, ...] = (".",)
    max_tokens: int = 2 * LENGTH
    max_turns: int = LENGTH + 1

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        for number in range(100):
            yield Item(f"{split}-{seed}-{number}", "?", "abc")

    def start(self, item: Item) -> tuple[Any, str | None]:
        return "", "start"

    async def step(self, item: Item, state: str, text: str) -> Reply:
        after = state + text.rstrip(".")
        if not item.answer.startswith(after):
            return Reply("+", state, state_key=state, failed=True)
        return Reply("+", after, after == item.answer, state_key=after)

    async def verify(self, item: Item, state: str, text: str) -> Verdict:
        return Verdict(float(state == item.answer), answer=state)


def planner(chances: dict[int, list[float]]) -> TabularEngine:
    """Writes "x.y.z." with the letters' chances by place in the plan, or after what the environment has said."""

    def row(prefix: tuple[int, ...]) -> list[float]:
        done = [t for t in prefix if t < 3]
        if len(done) >= LENGTH and prefix[-1] == 4:
            return [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
        if prefix[-1] < 3:
            return [0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
        return [*chances[len(done)], 0.0, 0.0, 0.0]

    return TabularEngine(row, LETTERS)


def grown(plans: int, corrections: int, items: int = 30, **knobs: Any) -> Forest:
    task, chances = House(), {0: [0.6, 0.2, 0.2], 1: [0.5, 0.3, 0.2], 2: [0.3, 0.3, 0.4]}
    strategy = PlanTries(plans, corrections, plan_tokens=2 * LENGTH, **knobs)
    return asyncio.run(grow(strategy, planner(chances), task, islice(task.items("test"), items), seed=3))


def test_it_reaches_the_goal_exactly_where_some_plan_does() -> None:
    forest, solved = grown(8, 100), 0
    for tree in (t for t in forest if "/" not in t.id):
        side = next(t for t in forest if t.id.startswith(f"{tree.id}/planner"))
        plans = {LETTERS.decode(n.actions) for n in side if n.role == "policy"}
        right = [n for n in tree if n.status == "done" and n.scores.get("reward") == 1.0]
        assert bool(right) == any(plan.startswith("a.b.c.") for plan in plans)
        solved += bool(right)
    assert 0 < solved < 30


def test_failed_actions_are_left_from_the_state_of_then_and_counted() -> None:
    forest = [t for t in grown(8, 100) if "/" not in t.id]
    tries = 0
    for tree in forest:
        for node in tree:
            if node.role != "env":
                continue
            path = tree.path(node)
            done = "".join(LETTERS.decode(n.actions).rstrip(".") for n in path if n.role == "policy")
            if node.notes.get("failed"):
                tries += 1
                assert node.status == "pruned"
            else:
                assert node.state == done, "nothing of a failed action stays"
    assert tries
    rights = [sum(n.scores.get("reward", 0.0) for t in grown(8, most) for n in t) for most in (0, 100)]
    assert rights[0] < rights[1]


def test_nothing_is_asked_where_plans_do_not_part() -> None:
    for tree in (t for t in grown(1, 0, 10) if "/" not in t.id):
        assert not [e for e in tree.events if e.kind == "select"]
        told = next(e for e in tree.events if e.why == "plans")
        assert told.numbers == {"written": 1, "readable": 1}


def test_plans_that_do_not_read_as_actions_are_dropped_and_said() -> None:
    tree = next(t for t in grown(4, 0, 1, action="z") if "/" not in t.id)
    assert next(e for e in tree.events if e.why == "plans").numbers == {"written": 4, "readable": 0}
    assert len(tree) == 1
