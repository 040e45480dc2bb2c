"""What every strategy owes, whatever it does: the contract tests, on exact tiny tasks, in seconds.

Each check takes a strategy and raises AssertionError with a sentence when the contract is broken. They grow real
forests with a real (exact) engine; failures and cancellations are injected for real.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from rolltree.control.ledger import RESOURCES, Budget, Limits
from rolltree.engine.protocol import Engine
from rolltree.generate.runner import grow
from rolltree.generate.strategy import NeedsError, TreeStrategy, check_needs
from rolltree.task.protocol import Item, Task
from rolltree.testing.faulty import Flaky, Mute
from rolltree.testing.tiny import SpellTask, Walk, tiny_engine
from rolltree.tree import Forest, Node, Tree

EngineFactory = Callable[[], Engine]

PATIENCE = 60.0
"""Seconds after which a strategy that should have ended counts as endless."""


def check_strategy(strategy: TreeStrategy, tasks: Sequence[Task] = ()) -> None:
    """Run every strategy check; the first broken one raises AssertionError."""
    for check in STRATEGY_CHECKS.values():
        check(strategy, tasks)


def leaves_end_with_reasons(strategy: TreeStrategy, tasks: Sequence[Task] = ()) -> None:
    """Every leaf is done, paused, pruned or failed, with a finish reason or an event that says why."""
    for task in _fitting(strategy, tasks):
        forest, budget = _grown(strategy, task)
        _assert_ended(forest, task)
        _assert_settled(forest, budget)
        crashed = {t.id: t.notes["failed"] for t in forest if "failed" in t.notes}
        assert not crashed, f"growing trees of {task.name} crashed: {crashed}"


def any_budget_is_honoured(strategy: TreeStrategy, tasks: Sequence[Task] = ()) -> None:
    """Under any limit, 0 included, nothing is spent beyond it, the accounts match the forest, and nothing crashes."""
    limits = [Limits(decoded=n) for n in (0, 1, 2, 7, 40, 153)] + [Limits(leaves=n) for n in (0, 1, 3, 10)]
    limits += [Limits(env_steps=0), Limits(env_steps=3), Limits(judge_calls=0), Limits(seconds=0)]
    limits += [Limits(prefilled=n) for n in (0, 5, 50)]
    for task, limit in itertools.product(_fitting(strategy, tasks), limits):
        for per_prompt in (False, True):
            budget = Budget(None if per_prompt else limit)
            forest, _ = _grown(strategy, task, budget=budget, per_prompt=limit if per_prompt else None)
            where = f"{task.name} under {'a prompt' if per_prompt else 'a run'} limit of {_shown(limit)}"
            _assert_settled(forest, budget)
            _assert_ended(forest, task)
            crashed = {t.id: t.notes["failed"] for t in forest if "failed" in t.notes}
            assert not crashed, f"{where}: growing trees crashed: {crashed}"
            for resource in RESOURCES:
                most = getattr(limit, resource)
                if most is None:
                    continue
                spent = getattr(budget.spent, resource) - budget.overrun(resource)
                most *= len(forest) if per_prompt else 1
                assert spent <= most, f"{where}: {spent} {resource} were spent"


def ends_when_nothing_comes(strategy: TreeStrategy, tasks: Sequence[Task] = ()) -> None:
    """An engine that adds no token (at its limit, or aborting) does not keep a strategy busy for ever."""
    for task in _fitting(strategy, tasks):
        for finish in ("length", "abort"):
            forest, budget = _grown(strategy, task, engine=lambda finish=finish: Mute(tiny_engine(), finish))
            _assert_ended(forest, task)
            _assert_settled(forest, budget)


def same_seed_same_forest(strategy: TreeStrategy, tasks: Sequence[Task] = ()) -> None:
    """The forest depends on the seed alone: not on which request is served first, nor on what else is in the batch."""
    for task in _fitting(strategy, tasks):
        plain, _ = _grown(strategy, task)
        for shuffle in (1, 2, 3):
            shuffled, _ = _grown(strategy, task, engine=lambda shuffle=shuffle: tiny_engine(shuffle=shuffle))
            _assert_same(plain, shuffled, f"{task.name}: another order of service")
        alone, _ = _grown(strategy, task, items=_items(task)[1:2])
        _assert_same(Forest([plain[t.id] for t in alone]), alone, f"{task.name}: another batch")


def events_explain_every_node(strategy: TreeStrategy, tasks: Sequence[Task] = ()) -> None:
    """Each node below a root was born by a recorded decision: extend, fork, force, act, cut, splice or graft."""
    for task in _fitting(strategy, tasks):
        forest, _ = _grown(strategy, task)
        for tree in forest:
            born = _told_births(tree)
            silent = [n.id for n in tree if n.parent is not None and n.id not in born]
            assert not silent, f"{task.name}, tree {tree.id!r}: no event bore the nodes {silent}; grow by the hand"


def crashes_are_failures_not_zeros(strategy: TreeStrategy, tasks: Sequence[Task] = ()) -> None:
    """An engine, environment or verifier that breaks leaves failed nodes without reward; the run goes on."""
    for task in _fitting(strategy, tasks):
        for part in ("engine", "step", "verify"):
            broken = Flaky(task, part)
            engine = (lambda broken=broken: broken.engine(tiny_engine())) if part == "engine" else tiny_engine
            forest, budget = _grown(strategy, broken, engine=engine)
            _assert_ended(forest, task)
            _assert_settled(forest, budget)
            if broken.raised:
                failed = [n for _, n in forest.nodes() if n.status == "failed"] + [
                    e for t in forest for e in t.events if e.kind in ("fail", "retry")
                ]
                assert failed, f"{task.name}: the {part} raised {broken.raised}x and nothing in the forest shows it"


def cancelling_pauses(strategy: TreeStrategy, tasks: Sequence[Task] = ()) -> None:
    """A cancelled run leaves a consistent forest: accounts settled, no leaf open, tokens in flight kept."""
    for task in _fitting(strategy, tasks):
        for ticks in (1, 4, 9):
            forest, budget = asyncio.run(_cancelled(strategy, task, ticks))
            _assert_ended(forest, task)
            _assert_settled(forest, budget)


STRATEGY_CHECKS: dict[str, Callable[..., None]] = {
    check.__name__: check
    for check in (
        leaves_end_with_reasons, any_budget_is_honoured, ends_when_nothing_comes, same_seed_same_forest,
        events_explain_every_node, crashes_are_failures_not_zeros, cancelling_pauses,
    )
}  # fmt: skip


def shape(tree: Tree, node: Node | None = None) -> Any:
    """A tree as nested tuples, children sorted: equal for equal trees, in whatever order they were grown."""
    here = tree.root if node is None else node
    below = sorted((shape(tree, child) for child in tree.children(here)), key=repr)
    logp = None if here.logp is None else here.logp.tobytes()
    return (here.role, here.actions.tobytes(), logp, here.status, here.finish, here.birth,
            tuple(sorted(here.scores.items())), tuple(below))  # fmt: skip


def _fitting(strategy: TreeStrategy, tasks: Sequence[Task]) -> list[Task]:
    fitting: list[Task] = []
    reasons: list[str] = []
    for task in tasks or (SpellTask(), Walk()):
        try:
            check_needs(strategy.needs, type(strategy).__name__, tiny_engine(), task)
            fitting.append(task)
        except NeedsError as error:
            reasons.append(str(error))
    assert fitting, f"no task of the contract fits: {'; '.join(reasons)}"
    return fitting


def _items(task: Task) -> list[Item]:
    return list(itertools.islice(task.items("train"), 3))


def _grown(
    strategy: TreeStrategy, task: Task, *, engine: EngineFactory = tiny_engine, budget: Budget | None = None,
    per_prompt: Limits | None = None, seed: int = 5, items: Sequence[Item] | None = None,
) -> tuple[Forest, Budget]:  # fmt: skip
    account = budget or Budget()

    async def run() -> Forest:
        mine = copy.deepcopy(strategy)
        asked = _items(task) if items is None else items
        return await asyncio.wait_for(
            grow(mine, engine(), task, asked, seed=seed, budget=account, per_prompt=per_prompt), PATIENCE
        )

    try:
        return asyncio.run(run()), account
    except TimeoutError:
        raise AssertionError(f"{task.name}: still running after {PATIENCE:g} s; does a loop ignore its end?") from None


async def _cancelled(strategy: TreeStrategy, task: Task, ticks: int) -> tuple[Forest, Budget]:
    forest, budget = Forest(), Budget()
    mine = copy.deepcopy(strategy)
    run = asyncio.ensure_future(grow(mine, tiny_engine(), task, _items(task), seed=5, budget=budget, forest=forest))
    for _ in range(ticks):
        await asyncio.sleep(0)
    run.cancel()
    await asyncio.wait([run], timeout=PATIENCE)
    assert run.done(), f"{task.name}: cancelled after {ticks} ticks and still running; do not swallow CancelledError"
    return forest, budget


def _assert_ended(forest: Forest, task: Task) -> None:
    for tree, leaf in forest.leaves():
        where = f"{task.name}, tree {tree.id!r}: leaf {leaf.id}"
        assert leaf.status != "open", f"{where} is still open"
        why = any(e.node == leaf.id and e.kind in ("prune", "pause", "fail", "stop") for e in tree.events)
        above = any(e.kind == "prune" and e.node in {n.id for n in tree.path(leaf)} for e in tree.events)
        assert leaf.finish or why or above, f"{where} is {leaf.status} and nothing says why"
        broken = leaf.status == "failed" and "reward" in leaf.scores
        assert not broken, f"{where} failed and yet has a reward of {leaf.scores.get('reward')}"


def _assert_settled(forest: Forest, budget: Budget) -> None:
    budget.check()
    held = {r: budget.held(r) for r in RESOURCES if budget.held(r)}
    assert not held, f"the run is over and still holds {held}; a reservation was neither committed nor released"
    sampled = 0
    for tree in forest:
        copies = _copies(tree)
        sampled += sum(len(n) for n in tree if n.role == "policy" and not n.forced and n.id not in copies)
        sampled += sum(event.numbers.get("wasted", 0) for event in tree.events)
    decoded = budget.spent.decoded
    assert decoded == sampled, f"{decoded} tokens were paid and {sampled} sampled ones stand in the forest"


def _told_births(tree: Tree) -> set[int]:
    born: set[int] = set()
    for event in tree.events:
        if event.kind in ("extend", "fork"):
            born.update(event.numbers["children"])
        elif event.kind == "cut":
            born.add(event.numbers["head"])
        elif event.kind in ("force", "act", "fail") and event.node is not None:
            born.add(event.node)
    return born | _copies(tree)


def _copies(tree: Tree) -> set[int]:
    """Nodes that a splice or graft copied, with what later cuts made of them."""
    copies = {n.id for n in tree if n.birth in ("graft", "splice")}
    for event in tree.events:
        if event.kind == "graft" and event.node is not None:
            copies.update(range(event.node, event.node + event.numbers["nodes"]))
    halves = [{e.node, e.numbers["head"]} for e in tree.events if e.kind == "cut" and e.node is not None]
    known = -1
    while len(copies) > known:  # a half may itself have been cut later, in either order
        known = len(copies)
        for pair in halves:
            copies |= pair if pair & copies else set()
    return copies


def _assert_same(one: Forest, other: Forest, what: str) -> None:
    for tree in one:
        assert shape(tree) == shape(other[tree.id]), f"{what} gave another tree {tree.id!r} from the same seed"


def _shown(limits: Limits) -> str:
    return ", ".join(f"{getattr(limits, n)} {n}" for n in (*RESOURCES, "seconds") if getattr(limits, n) is not None)
