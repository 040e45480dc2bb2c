"""From the words of a command line to a pool and a task on a cluster."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from rolltree.cluster.elastic import Elastic
from rolltree.cluster.errors import ClusterError
from rolltree.cluster.pool import PoolEngine
from rolltree.cluster.rays import RayTransport, joined, parse_where
from rolltree.cluster.tasks import RemoteTask
from rolltree.engine.protocol import Engine
from rolltree.task.protocol import Task


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many processes of each kind; None = what suits the cluster."""

    engines: int | Elastic | None = None
    """Or between how many, by the load."""
    workers: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("engines", self.engines), ("workers", self.workers)):
            if isinstance(value, int) and value < 1:
                raise ClusterError(f"{value} {name} cannot work; give a whole number of at least 1")


@contextmanager
def launched(
    cluster: str, make: Callable[[int | None], Callable[[], Engine]], task: Task, sizes: Sizes | None = None
) -> Generator[tuple[PoolEngine, RemoteTask]]:
    """A pool whose engines are made by `make(threads)`, and a task, on a cluster named as `--cluster` names it.

    Here, engines share the processors by threads and Ray need not count them; elsewhere each takes a processor of its
    node, and Ray sets its threads. Call it outside of event loops.
    """
    where, sizes = parse_where(cluster), sizes or Sizes()
    with joined(where) as ray:
        nodes = sum(bool(node["Alive"]) for node in ray.nodes())
        rule = sizes.engines if isinstance(sizes.engines, Elastic) else None
        asked = None if isinstance(sizes.engines, Elastic) else sizes.engines
        engines = rule.least if rule is not None else asked or where.engines or nodes
        threads = None if where.address else max(1, (os.cpu_count() or 1) // (engines if rule is None else rule.most))
        each = (1, 0.25) if where.address else (0, 0)
        pool = PoolEngine(make(threads), engines, RayTransport(num_cpus=each[0]), elastic=rule)
        try:
            remote = RemoteTask(task, sizes.workers or engines, RayTransport(num_cpus=each[1]))
            try:
                yield pool, remote
            finally:
                remote.close()
        finally:
            asyncio.run(pool.close())
