"""Growing a forest: check what is needed, plant the trees, let the strategy work, leave every leaf with a reason."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from rolltree.control.ledger import Budget, Limits
from rolltree.engine.protocol import Engine, Sampling
from rolltree.generate.answers import check_item
from rolltree.generate.aside import join
from rolltree.generate.hand import Hand
from rolltree.generate.random import Stream
from rolltree.generate.roles import is_side
from rolltree.generate.setting import Patience, Setting
from rolltree.generate.strategy import ChecksEngine, TreeStrategy, check_needs, on_each
from rolltree.task.protocol import Item, Task
from rolltree.tree import Forest, Tree

# Fewer garbage collections while forests grow.
#
# What a growing forest allocates stays alive, so the cyclic collector visits all of it again and again and finds
# nothing: more than half of the scheduling time at 100,000 requests in flight. The sessions of a gateway are such a
# forest. Collections become rarer, never off.

Thresholds = tuple[int, int, int]
RARELY: Thresholds = (200_000, 200, 50)
SERVING: Thresholds = (20_000, 20, 20)
"""Of a server that may run for weeks: what requests leave in cycles is found after some hundreds of them."""
_asked: list[Thresholds] = []
"""One entry per run in progress."""
_own: list[Thresholds] = []
"""The process's own thresholds, while runs are in progress."""


@contextmanager
def rare_collections(thresholds: Thresholds = RARELY) -> Generator[None]:
    """Collect rarely inside; runs may overlap, the rarest wins, and the last one to end restores the thresholds."""
    if not _asked:
        _own[:] = [gc.get_threshold()]
    _asked.append(thresholds)
    gc.set_threshold(*max(_asked))
    try:
        yield
    finally:
        _asked.remove(thresholds)
        gc.set_threshold(*max(_asked, default=_own[0]))


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands."""

    trees: int
    leaves: int
    decoded: int
    seconds: float


def open_hand(
    engine: Engine,
    task: Task,
    *,
    seed: int = 0,
    budget: Budget | Limits | None = None,
    per_prompt: Limits | None = None,
    max_tokens: int | None = None,
    sampling: Sampling | None = None,
    patience: Patience | None = None,
    forest: Forest | None = None,
    clock: Callable[[], float] = time.monotonic,
    progress: Callable[[Progress], None] | None = None,
    peers: Mapping[str, Engine] | None = None,
    roles: Mapping[str, Engine] | None = None,
) -> Hand:
    """A hand bound to no tree yet, for growing by yourself; arguments as of `grow`. Go on with `plant` and `on`."""
    account = budget if isinstance(budget, Budget) else Budget(budget, clock=clock)
    planted = Forest() if forest is None else forest
    began = clock()
    setting = Setting(
        engine, task, planted, Stream(seed), lambda: clock() - began, patience or Patience(), sampling or Sampling(),
        task.max_tokens if max_tokens is None else max_tokens, per_prompt=per_prompt, peers=peers or {},
        roles=roles or {}, on_progress=None if progress is None else lambda: progress(_progress(planted, account)),
    )  # fmt: skip
    return Hand(setting, account)


async def grow(
    strategy: TreeStrategy,
    engine: Engine,
    task: Task,
    items: Iterable[Item],
    *,
    seed: int = 0,
    budget: Budget | Limits | None = None,
    per_prompt: Limits | None = None,
    max_tokens: int | None = None,
    sampling: Sampling | None = None,
    patience: Patience | None = None,
    forest: Forest | None = None,
    clock: Callable[[], float] = time.monotonic,
    progress: Callable[[Progress], None] | None = None,
    peers: Mapping[str, Engine] | None = None,
    roles: Mapping[str, Engine] | None = None,
    asides: bool = True,
) -> Forest:
    """Let a strategy grow a tree for each item, and return the forest.

    `budget` is the whole run's; `per_prompt` bounds each tree within it. `max_tokens` bounds the policy tokens of a
    path (default: the task's). `sampling` gives the defaults of every request; its seed is not used: streams of
    randomness follow from `seed`, task and tree alone. `progress` is called whenever a run of tokens has ended. `peers`
    are other policies, by the actor they write as; they must share the engine's tokens. `roles` are models that speak
    in a role (`Hand.ask`), in side trees of their own; their tokens may be others. `asides`: contexts of their own
    (`rolltree.generate.aside`) become leaves too.

    An item without an answer may stand: nothing verifies its rollouts, so they end without an outcome.

    Pass `forest` to keep what was grown when the call is cancelled (leaves in flight are then paused), and to grow on:
    an item whose trees stand in it already is not planted again.
    """
    if not callable(getattr(strategy, "grow_tree", None)):
        raise TypeError(f"{type(strategy).__name__} is no strategy: give it `needs` and `async grow_tree(tree, hand)`")
    check_needs(strategy.needs, type(strategy).__name__, engine, task)
    for name, peer in (peers or {}).items():
        check_needs(strategy.needs, f"{type(strategy).__name__} for {name!r}", peer, task)
    if isinstance(strategy, ChecksEngine):
        strategy.check(engine, task)
    hand = open_hand(
        engine, task, seed=seed, budget=budget, per_prompt=per_prompt, max_tokens=max_tokens, sampling=sampling,
        patience=patience, forest=forest, clock=clock, progress=progress, peers=peers, roles=roles,
    )  # fmt: skip
    asked = list(items)
    for item in asked:
        check_item(item, engine, peers or {}, answered=False)
    standing = [tree for tree in hand.forest if tree.item]
    for item in asked:
        again = [hand.adopt(tree, item) for tree in standing if tree.item == item.id]
        if not again:
            hand.plant(item)
    try:
        with rare_collections():
            await on_each([tree for tree in hand.forest if not is_side(tree)], hand, strategy.grow_tree)
    except asyncio.CancelledError:
        _pause(hand)
        raise
    finally:
        settle(hand.forest, hand.setting.clock())
        for tree in hand.forest if asides else ():
            join(tree, hand.setting.asides.pop(tree.id, []), hand.setting.clock())
    return hand.forest


def settle(forest: Iterable[Tree], at: float = 0.0) -> None:
    """Give every open leaf its reason: a segment nobody extended ends as it stopped, an untouched root as "budget"."""
    for tree in forest:
        for leaf in tree.leaves():
            if leaf.status == "open":
                tree.close(leaf, "done", leaf.finish or "budget", "not extended", at=at)


def _pause(hand: Hand) -> None:
    for tree in hand.forest:
        for leaf in tree.leaves():
            if leaf.status == "open" and leaf.parent is not None:
                tree.pause(leaf, "cancelled", at=hand.setting.clock())


def _progress(forest: Forest, account: Budget) -> Progress:
    spent = account.spent
    return Progress(len(forest), spent.leaves, spent.decoded, spent.seconds)
