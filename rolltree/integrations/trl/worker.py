"""Rolltree as the rollout worker of TRL's asynchronous GRPO trainer.

One object is both sides TRL asks for: the worker that grows trees and queues samples, and the weight transfer that
takes the trainer's weights. It lives in the trainer's process, with an event loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Coroutine, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from itertools import cycle, islice
from math import nan
from typing import Any

from torch import Tensor

from rolltree.control.ledger import Budget
from rolltree.engine.protocol import Engine, Sampling, token_codec
from rolltree.generate.random import mix
from rolltree.generate.runner import grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.integrations.asking import bound, prompted
from rolltree.integrations.errors import AdaptError
from rolltree.integrations.parts import portable
from rolltree.integrations.rows import Row, credited
from rolltree.metrics.reward import outcomes
from rolltree.metrics.rollouts import Rollouts
from rolltree.recipe.check import check
from rolltree.recipe.recipe import Parts, Recipe
from rolltree.task.protocol import Item, Task
from rolltree.training.start import task_of
from rolltree.tree.table import table

try:
    from rolltree.integrations.trl.samples import samples
except ImportError as error:
    raise AdaptError(f"TreeWorker needs TRL's asynchronous trainer ({error}): pip install 'rolltree[trl]'") from None

FULL = 0.02
"""Seconds between two looks at a queue that has no room."""


class TreeWorker:
    """TRL's `RolloutWorkerProtocol` and `WeightTransferProtocol` with any strategy or recipe.

    Pass the same object as `rollout_worker` and `weight_transfer`. `prompts` trees are grown at a time, over the items
    again and again; trees may be uneven, since a sample needs no group of fixed size. Leaves that failed or that the
    recipe drops become no samples; they are counted in `metrics_queue`. A sample's version is the oldest that wrote one
    of its tokens.
    """

    def __init__(
        self, recipe: str | Recipe | Parts | TreeStrategy, task: str | Task, items: Iterable[Item],
        engine: Engine, *, prompts: int = 8, seed: int = 0, temperature: float = 1.0, max_tokens: int | None = None,
        queue_size: int = 1024,
    ) -> None:  # fmt: skip
        self.parts = portable(recipe, "TRL's asynchronous trainer")
        self.task = bound(task_of(task), engine.codec)
        self.engine = engine
        self.items = tuple(items)
        if not self.items:
            raise AdaptError("there are no items to roll out; give at least one")
        self.prompts = min(prompts, len(self.items))
        self.seed = seed
        self.sampling = Sampling(temperature=temperature)
        self.limit = max_tokens or self.task.max_tokens
        self.rollout_buffer: queue.Queue[Any] = queue.Queue(queue_size)
        self.metrics_queue: queue.Queue[dict[str, float]] = queue.Queue()
        self._named = {engine.version: 0}
        """The trainer's number of each version of the engine's weights."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rolltree-worker", daemon=True)
        self._thread.start()
        self._job: Future[None] | None = None
        self._alive = time.monotonic()
        self._groups = 0
        check(self.parts, engine, self.task)

    # -- TRL's rollout worker --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to grow trees."""
        self._alive = time.monotonic()
        self._job = asyncio.run_coroutine_threadsafe(self._produce(), self._loop)

    def stop(self) -> None:
        """End rollouts in flight and close the engine; a second call does nothing."""
        if self._loop.is_closed():
            return
        if self._job is not None:
            self._job.cancel()
        self._wait(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def update_model_version(self, model_version: int) -> None:
        """The trainer's number for the weights it sent last."""
        self._named[self.engine.version] = model_version

    def check_health(self, stale_after_s: float) -> None:
        """Raise if growing crashed, or has given nothing for so long although the queue had room."""
        if self._job is not None and self._job.done() and not self._job.cancelled():
            error = self._job.exception()
            raise AdaptError(f"growing rollouts crashed: {type(error).__name__}: {error}") from error
        idle = time.monotonic() - self._alive
        if self._job is not None and idle > stale_after_s:
            raise AdaptError(
                f"no rollout was finished for {idle:.0f} s (limit {stale_after_s:g} s); look at the engine"
            )

    # -- TRL's weight transfer -------------------------------------------------------------------------------------

    def init_weight_transfer(self) -> None:
        """Nothing to set up: both sides are in one process."""

    def pause(self) -> None:
        """Hold rollouts where they are."""
        self._wait(self.engine.pause())

    def send_weights(self, iterator: Iterator[tuple[str, Tensor]]) -> None:
        """Take the trainer's weights under the engine's next version."""
        state = {name: tensor.detach() for name, tensor in iterator}
        self._wait(self.engine.update_weights(state, self.engine.version + 1))

    def resume(self) -> None:
        """Go on; rollouts in flight continue with the new weights."""
        self._wait(self.engine.resume())

    def destroy(self) -> None:
        """Nothing to release: `stop` closes the engine."""

    # -- growing ---------------------------------------------------------------------------------------------------

    async def _produce(self) -> None:
        stream = cycle(self.items)
        while True:
            self._groups += self.prompts
            items = await prompted(self.task, list(islice(stream, self.prompts)))
            asked = [replace(item, id=f"{item.id}/{self._groups + i}") for i, item in enumerate(items)]
            budget = Budget(name="rollouts for TRL")
            forest = await grow(
                self.parts.strategy, self.engine, self.task, asked, seed=mix(self.seed, "trl", self._groups),
                budget=budget, max_tokens=self.limit, sampling=self.sampling,
            )  # fmt: skip
            rows = credited(self.parts, list(forest), self.limit)
            place = {item.id: i for i, item in enumerate(asked)}
            made = 0
            for tree, of_tree in zip(forest, rows, strict=True):
                made += await self._queue(of_tree, self._groups + place[tree.item])
            seen = outcomes(Rollouts(table(forest)))
            self.metrics_queue.put({
                "rolltree/leaves": float(sum(1 for _ in forest.leaves())), "rolltree/samples": float(made),
                "rolltree/failed_leaves": seen.get("rollout/failed", 0.0),
                "rolltree/outcome": seen.get("reward/mean", nan),
                "rolltree/decoded": float(budget.spent.decoded),
            })  # fmt: skip
            self._alive = time.monotonic()

    async def _queue(self, rows: list[Row], group: int) -> int:
        """Put a prompt's samples where the trainer takes them, waiting for room; returns how many."""
        made = 0
        for row in rows:
            for sample in samples([row], token_codec(self.engine, "TRL"), version=self._name(row.version), group=group,
                                  at=time.time()):  # fmt: skip
                while self.rollout_buffer.full():
                    self._alive = time.monotonic()
                    await asyncio.sleep(FULL)
                self.rollout_buffer.put_nowait(sample)
                made += 1
        return made

    def _name(self, version: int) -> int:
        """The trainer's number of an engine's version; between two, the older one, so that age is never understated."""
        return max((name for at, name in self._named.items() if at <= version), default=0)

    async def _end(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.engine.close()

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()
