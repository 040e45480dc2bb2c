"""A pool's end of one engine: what is in flight there, one call that brings orders, one that waits for news."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from rolltree.cluster.jobs import Job
from rolltree.cluster.wire import Described, News, Order, Remote
from rolltree.engine.run import Watchdog


class Bell:
    """Wakes everybody who waits now."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Until it rings."""
        await self._event.wait()

    def ring(self) -> None:
        """Wake them."""
        self._event.set()
        self._event = asyncio.Event()


class Member:
    """One engine at work. At most one call of each kind is on its way; what comes up meanwhile goes with the next."""

    def __init__(
        self,
        remote: Remote,
        described: Described,
        hear: Callable[[Member, Sequence[News]], None],
        lose: Callable[[Member, Exception], None],
    ) -> None:
        self.remote = remote
        self.pid = described.pid
        self.jobs: dict[int, Job] = {}
        self.served = False
        """Whether it was ever given a job."""
        self.taken: set[int] = set()
        """Jobs that the engine is known to have received."""
        self.left = Bell()
        """Rings whenever a job has left."""
        self.watchdog = Watchdog(self)
        """Names a process that says nothing at all; what only its engine does, its own watchdog there names."""
        self._words = 0
        self._hear = hear
        self._lose = lose
        self._orders: list[tuple[int, Any]] = []
        self._sending: asyncio.Task[None] | None = None
        self._listening = asyncio.ensure_future(self._listen())

    def give(self, job: Job, offset: bool) -> None:
        """Have it work on a job; ClusterError where the job cannot travel."""
        packed = self.remote.pack(job.order(offset))
        self.jobs[job.number] = job
        self.served = True
        self.watchdog.wake(asyncio.get_running_loop())
        self._post(job.number, packed)

    def tell(self, order: Order) -> None:
        """Send word about a job that it has."""
        self._post(order.job, self.remote.pack(order))

    def drop(self, *numbers: int) -> None:
        """Jobs have left."""
        for number in numbers:
            self.jobs.pop(number, None)
            self.taken.discard(number)
        self.left.ring()

    def at_work(self) -> int | None:
        """Words heard; None while it has nothing to do."""
        return self._words if self.jobs else None

    def doing(self) -> str:
        """What it is at, for people."""
        return (
            f"the engine in process {self.pid} has {len(self.jobs)} requests and says nothing, not even that it lives; "
            "its process may be stopped, or its machine out of reach"
        )

    def kill(self) -> None:
        """Part with the process."""
        self._listening.cancel()
        if self._sending is not None:
            self._sending.cancel()
        self.remote.kill()

    def _post(self, number: int, packed: Any) -> None:
        self._orders.append((number, packed))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        try:
            while self._orders:
                orders, self._orders = self._orders, []
                await self.remote.call("take", orders)
                self.taken.update(number for number, _ in orders if number in self.jobs)
        except Exception as error:  # whatever it is: orders may not have arrived
            self._lose(self, error)

    async def _listen(self) -> None:
        try:
            while True:
                told = await self.remote.call("news")
                self._words += 1
                self._hear(self, told)
        except Exception as error:  # whatever it is: news may have been lost
            self._lose(self, error)
