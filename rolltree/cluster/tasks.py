"""A task whose environment steps and verdicts are computed in other processes.

Tasks are functional: a state is a value, so it travels with each call and no process holds one. A killed process
therefore loses no episode: the call fails, the hand repeats it (see `Patience`) and it is answered by another process.
Where it stays without an answer the node is failed and counted, never scored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rolltree.cluster.errors import ClusterError, LostError
from rolltree.cluster.wire import Remote, Transport
from rolltree.task.protocol import Item, Reply, Split, Task, Verdict


class WorkerDiedError(RuntimeError):
    """The process that was computing a step or a verdict is gone."""


class TaskHost:
    """Computes steps and verdicts of one task."""

    def __init__(self, task: Task) -> None:
        self._task = task

    async def step(self, item: Item, state: Any, text: str) -> Reply:
        """As the task does."""
        return await self._task.step(item, state, text)

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """As the task does."""
        return await self._task.verify(item, state, text)

    async def ping(self) -> None:
        """Answer."""


@dataclass(eq=False, slots=True)
class _Worker:
    remote: Remote
    busy: int = 0


class RemoteTask:
    """A `Task` that keeps items and first states here and has the rest done by `workers` processes.

    A call goes to the idlest of them. One that dies is replaced; so is one that, after a call was given up, does not
    answer within `hung` seconds (code that blocks cannot be ended otherwise), and what else it was doing fails as well.
    """

    def __init__(self, task: Task, workers: int, transport: Transport, *, hung: float = 10.0) -> None:
        if workers < 1:
            raise ClusterError(f"{workers} task workers cannot answer; give at least 1")
        self.inner = task
        self.name, self.level, self.stop = task.name, task.level, task.stop
        self.max_tokens, self.max_turns = task.max_tokens, task.max_turns
        self.lost = 0
        """Workers that died or hung, so far."""
        self._hung = hung
        self._transport = transport
        self._shared = transport.share(task)
        self._workers = [self._worker() for _ in range(workers)]
        self._checks: set[asyncio.Task[None]] = set()

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Those of the task."""
        return self.inner.items(split, seed)

    def start(self, item: Item) -> tuple[Any, str | None]:
        """As of the task."""
        return self.inner.start(item)

    async def step(self, item: Item, state: Any, text: str) -> Reply:
        """As of the task, in another process."""
        return await self._ask("step", item, state, text)

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """As of the task, in another process."""
        return await self._ask("verify", item, state, text)

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.remote.kill()

    def __getattr__(self, name: str) -> Any:
        # What a task offers beyond the contract (an expert, a noise level) it offers here too.
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    async def _ask(self, method: str, item: Item, state: Any, text: str) -> Any:
        worker = min(self._workers, key=lambda w: w.busy)
        worker.busy += 1
        try:
            return await worker.remote.call(method, item, state, text)
        except LostError as error:
            self._replace(worker)
            # Others on its machine may have gone with it, and must not meet the next try.
            await asyncio.gather(*(self._check(w) for w in tuple(self._workers) if not w.busy))
            raise WorkerDiedError(f"the process died in which {self.name} was to {method} ({error})") from error
        except asyncio.CancelledError:
            self._suspect(worker)
            raise
        finally:
            worker.busy -= 1

    def _worker(self) -> _Worker:
        return _Worker(self._transport.spawn(TaskHost, self._shared))

    def _replace(self, worker: _Worker) -> None:
        if worker in self._workers:
            self.lost += 1
            worker.remote.kill()
            self._workers[self._workers.index(worker)] = self._worker()

    def _suspect(self, worker: _Worker) -> None:
        check = asyncio.ensure_future(self._check(worker))
        self._checks.add(check)
        check.add_done_callback(self._checks.discard)

    async def _check(self, worker: _Worker) -> None:
        try:
            async with asyncio.timeout(self._hung):
                await worker.remote.call("ping")
        except (LostError, TimeoutError):
            self._replace(worker)
