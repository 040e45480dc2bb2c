"""What must hold for every recipe's strategy, whatever it does: one row per recipe, one column per property.

Exact engines, tiny tasks, real faults: budgets that end mid-tree, engines that return nothing, every leaf pruned under
the strategy's hands, requests served one at a time or in any order.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from rolltree.control.ledger import Budget
from rolltree.engine.protocol import Engine, Generation, Request, Sample
from rolltree.generate.hand import Hand
from rolltree.generate.runner import grow
from rolltree.generate.strategy import ChecksEngine, NeedsError, TreeStrategy, check_needs
from rolltree.recipe.registry import list_recipes, load_recipe
from rolltree.task.protocol import Task
from rolltree.testing import strategy as contract
from rolltree.testing.faulty import Wrapped
from rolltree.testing.strategy import shape
from rolltree.testing.tiny import SpellTask, Walk, tiny_engine
from rolltree.tree import Forest, Tree
from tests.recipe.small import SMALL

NAMES = list(
    {repr(load_recipe(c.name, **SMALL.get(c.name, {})).build().strategy): c.name for c in list_recipes()}.values()
)
"""One recipe per strategy: several differ in their update alone."""
PATIENCE = 300


def strategy_of(name: str) -> Any:
    return load_recipe(name, **SMALL.get(name, {})).build().strategy


def tasks_of(name: str) -> list[Task]:
    fitting = [task for task in (SpellTask(), Walk()) if fits(strategy_of(name), task)]
    assert fitting, f"{name} fits no task of the contract; give it one here"
    return fitting


def fits(strategy: Any, task: Task) -> bool:
    try:
        check_needs(strategy.needs, type(strategy).__name__, tiny_engine(), task)
        if isinstance(strategy, ChecksEngine):
            strategy.check(tiny_engine(), task)
    except NeedsError:
        return False
    return True


def grown(strategy: Any, task: Task, engine: Engine, budget: Budget | None = None, n: int = 2) -> Forest:
    async def run() -> Forest:
        items = itertools.islice(task.items("train"), n)
        return await asyncio.wait_for(grow(strategy, engine, task, items, seed=5, budget=budget), PATIENCE)

    return asyncio.run(run())


@pytest.mark.parametrize("check", contract.STRATEGY_CHECKS.values(), ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_keeps_the_strategy_contract(name: str, check: Callable[..., None]) -> None:
    """Budgets (0 included), silence, crashes, cancellation, order of service, accounts: see the contract's checks."""
    check(strategy_of(name), tasks_of(name))


class OneByOne(Wrapped):
    """Serves one request at a time, in the order they came: the other end from serving all at once."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.turn = asyncio.Lock()

    def submit(self, request: Request) -> Generation:
        return Waiting(self, request)  # type: ignore[return-value]


class Waiting:
    def __init__(self, engine: OneByOne, request: Request) -> None:
        self.task = asyncio.ensure_future(self.work(engine, request))
        self.run: Generation | None = None
        self.finish: Any = None

    async def work(self, engine: OneByOne, request: Request) -> Sample:
        async with engine.turn:
            self.run = engine.inner.submit(request)
            if self.finish is not None:
                self.run.stop(self.finish)
            return await self.run

    def __await__(self) -> Any:
        return asyncio.shield(self.task).__await__()

    def stop(self, finish: Any = "abort") -> None:
        self.finish = finish
        if self.run is not None:
            self.run.stop(finish)


@pytest.mark.parametrize("name", NAMES)
def test_the_forest_is_the_same_with_one_request_in_flight_and_with_all(name: str) -> None:
    for task in tasks_of(name):
        at_once = grown(strategy_of(name), task, tiny_engine())
        alone = grown(strategy_of(name), task, OneByOne(tiny_engine()))
        for tree in at_once:
            assert shape(tree) == shape(alone[tree.id])


@dataclass
class Sabotaged:
    """A strategy under whose hands every leaf that stands is pruned, once, after so many turns of the event loop."""

    inner: TreeStrategy
    ticks: int

    @property
    def needs(self) -> frozenset[str]:
        return self.inner.needs

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        async def prune() -> None:
            for _ in range(self.ticks):
                await asyncio.sleep(0)
            for leaf in tree.leaves():
                if leaf.parent is not None and leaf.status != "failed":
                    hand.prune(leaf, why="injected")

        pruning = asyncio.ensure_future(prune())
        try:
            await self.inner.grow_tree(tree, hand)
        finally:
            await pruning


@pytest.mark.parametrize("name", NAMES)
def test_every_leaf_pruned_mid_growth_is_no_crash(name: str) -> None:
    strategy = strategy_of(name)
    for task, ticks in itertools.product(tasks_of(name), (1, 2, 3, 5, 8, 12, 16, 20, 25, 30, 40, 60)):
        budget = Budget()
        forest = grown(Sabotaged(strategy, ticks), task, tiny_engine(), budget)
        for tree in forest:
            assert "failed" not in tree.notes, f"{task.name}: {tree.notes['failed']}"
            assert all(leaf.status != "open" for leaf in tree.leaves())
        contract._assert_settled(forest, budget)  # pyright: ignore[reportPrivateUsage]


class Recording(Wrapped):
    """Remembers what was written behind what."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.written: list[tuple[Request, Generation]] = []

    def submit(self, request: Request) -> Generation:
        run = self.inner.submit(request)
        self.written.append((request, run))
        return run


@pytest.mark.parametrize("name", NAMES)
def test_every_path_is_what_the_engine_wrote_and_survives_random_forks(name: str) -> None:
    """Each sampled token stands behind the very prefix it was drawn behind, and no cut or fork ever changes a path."""
    rng = np.random.default_rng(0)
    for task in tasks_of(name):
        forest, engine = grown_recorded(strategy_of(name), task)
        told: dict[bytes, set[int]] = {}
        for prefix, actions in engine:
            for i, action in enumerate(actions):
                told.setdefault(np.concatenate([prefix, actions[:i]]).astype(np.int64).tobytes(), set()).add(
                    int(action)
                )
        for tree in forest:
            paths = {leaf.id: tree.prefix(leaf).copy() for leaf in tree.leaves()}
            for node in tree:
                if node.role == "policy" and not node.forced and node.birth != "splice" and not spliced(tree, node.id):
                    above = tree.prefix(node)[: -len(node) or None]
                    for i, action in enumerate(node.actions):
                        before = np.concatenate([above, node.actions[:i]]).astype(np.int64).tobytes()
                        assert int(action) in told.get(before, ()), f"{name}: node {node.id} of {tree.id}, action {i}"
            for _ in range(30):
                node = tree[int(rng.choice(list(tree.nodes)))]
                if node.parent is not None and len(node):
                    head = tree.cut(node, int(rng.integers(0, len(node) + 1)))
                    if rng.random() < 0.3 and head.status == "done":
                        new = tree.extend(head, [1, 2], status="done")
                        paths[new.id] = np.concatenate([tree.prefix(head), [1, 2]])
            for leaf, path in paths.items():
                assert np.array_equal(tree.prefix(leaf)[: len(path)], path)
                assert tree[leaf].is_leaf or tree.leaves(leaf), "a leaf that was forked at its end keeps its path"


def spliced(tree: Tree, node: int) -> bool:
    return any(n.birth == "splice" for n in tree.path(node))


def grown_recorded(strategy: Any, task: Task) -> tuple[Forest, list[tuple[Any, Any]]]:
    async def run() -> tuple[Forest, list[tuple[Any, Any]]]:
        engine = Recording(tiny_engine())
        forest = await grow(strategy, engine, task, itertools.islice(task.items("train"), 2), seed=3)
        return forest, [(np.asarray(request.prefix), (await run).actions) for request, run in engine.written]

    return asyncio.run(run())
