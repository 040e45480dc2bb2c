"""Growing rollouts in one call, without an event loop of one's own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from rolltree.control.ledger import Budget, Limits
from rolltree.engine.choose import local_engine
from rolltree.engine.protocol import Engine, Sampling
from rolltree.generate import runner
from rolltree.generate.strategy import TreeStrategy
from rolltree.policy.load import LoadedModel
from rolltree.recipe.recipe import Parts, Recipe
from rolltree.task.protocol import Item, Split, Task
from rolltree.tree import Forest


def grow(
    recipe: str | Recipe | Parts | TreeStrategy, model: str | Path | LoadedModel | Engine,
    task: str | Task, *,
    items: int | Iterable[Item] = 1, split: Split = "train", seed: int = 0, budget: Budget | Limits | None = None,
    max_tokens: int | None = None, temperature: float = 1.0,
) -> Forest:  # fmt: skip
    """Let a strategy, or a recipe's, grow a tree for each item: so many of the task's own, or the items given.

    From within a running event loop, await `rolltree.generate.runner.grow` instead.
    """
    from rolltree.recipe.check import check
    from rolltree.training.peers import frozen_peers
    from rolltree.training.start import parts_of, task_of

    asked = task_of(task)
    if isinstance(recipe, TreeStrategy):
        strategy, parts = recipe, None
    else:
        parts = parts_of(recipe)
        strategy = parts.strategy
    chosen = islice(asked.items(split, seed), items) if isinstance(items, int) else items

    async def run() -> Forest:
        engine = _engine(model)
        known = model if isinstance(model, (str, Path, LoadedModel)) else None
        peers = frozen_peers(parts.peers, known) if parts is not None else {}
        try:
            if parts is not None:
                check(parts, engine, asked)
            return await runner.grow(
                strategy, engine, asked, chosen, seed=seed, budget=budget, max_tokens=max_tokens,
                sampling=Sampling(temperature=temperature), peers=peers,
            )  # fmt: skip
        finally:
            for peer in peers.values():
                await peer.close()
            if engine is not model:
                await engine.close()

    return asyncio.run(run())


def _engine(model: str | Path | LoadedModel | Engine) -> Engine:
    if isinstance(model, (str, Path, LoadedModel)):
        return local_engine(model)
    return model
