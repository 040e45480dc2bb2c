"""Nodes, engines, verifiers and drivers of a Ray cluster, killed at any moment.

Promised: the forest is the one that a single engine grows, nothing is counted twice, and what a dead driver had started
ends. One cluster of nodes on this machine serves all cases; `make attack-ray` goes on for ten minutes.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from rolltree.cluster import PoolEngine, RemoteTask
from rolltree.control.ledger import Budget
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.generate.setting import Patience
from rolltree.task.protocol import Task
from rolltree.testing.tiny import SpellTask, Walk, tiny_engine
from tests.attack.frame import Attack, BrokenPromiseError

STORE = 80 << 20
ITEMS, GROUP = 12, 6
LIVES = 50
"""Engines that may die with a request in them: here it is never the request that kills them."""
PATIENCE = 240.0
"""Seconds after which a forest hangs."""
TASKS: dict[str, Task] = {"walk": Walk(), "spell": SpellTask()}


@functools.cache
def _cluster() -> Any:
    """A head and a node, for this process."""
    import ray
    from ray.cluster_utils import Cluster

    args = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=args)
    atexit.register(made.shutdown)
    atexit.register(ray.shutdown)
    made.add_node(num_cpus=1, object_store_memory=STORE)
    ray.init(address=made.address, log_to_driver=False, logging_level="warning")
    return made


async def grown(engine: Any, task: Task, budget: Budget | None = None) -> list[Any]:
    """A forest, in an order that does not depend on who was faster."""
    items = list(itertools.islice(task.items("train"), ITEMS))
    patience = Patience(tries=30, step_seconds=PATIENCE, verify_seconds=PATIENCE)
    forest = await grow(Independent(GROUP), engine, task, items, seed=5, budget=budget, patience=patience)
    return [
        sorted([leaf.status, leaf.finish, tree.prefix(leaf).tolist(), leaf.scores.get("reward")]
               for leaf in tree.leaves()) for tree in forest
    ]  # fmt: skip


@functools.cache
def alone(name: str) -> list[Any]:
    """What one engine in this process grows."""
    return asyncio.run(grown(tiny_engine(), TASKS[name]))


async def _kill(rng: random.Random, pool: PoolEngine, task: RemoteTask, cluster: Any, nodes: list[Any]) -> str:
    """One of them, while there is work."""
    what = rng.choice(("engine", "engine", "verifier", "node"))
    if what == "engine":
        pids = [pid for pid in pool.health.pids if psutil.pid_exists(pid)]
        for pid in rng.sample(pids, min(len(pids), rng.choice((1, 1, 2)))):
            os.kill(pid, signal.SIGKILL)
    elif what == "verifier":
        rng.choice(task._workers).remote.kill()  # pyright: ignore[reportPrivateUsage]
    else:
        await asyncio.to_thread(cluster.remove_node, nodes.pop(rng.randrange(len(nodes))), False)
        nodes.append(_node(cluster))  # Ray starts one in the main thread only
    return what


def _node(cluster: Any) -> Any:
    return cluster.add_node(num_cpus=1, object_store_memory=STORE)


_nodes: list[Any] = []


def nodes(rng: random.Random, place: Path) -> str:
    """A forest grown by a pool and by verifiers on nodes, of which up to four are killed."""
    from rolltree.cluster.rays import RayTransport

    cluster, name = _cluster(), rng.choice(sorted(TASKS))
    if not _nodes:
        _nodes.append(_node(cluster))
    pool = PoolEngine(tiny_engine, 3, RayTransport(num_cpus=0), patience=PATIENCE, lives=LIVES)
    task, budget, killed = RemoteTask(TASKS[name], 2, RayTransport(num_cpus=0)), Budget(), list[str]()

    async def main() -> list[Any]:
        work = asyncio.ensure_future(grown(pool, task, budget))
        for _ in range(rng.randint(1, 4)):
            while not any(pool.health.loads) and not work.done():
                await asyncio.sleep(0.001)
            await asyncio.sleep(rng.choice((0, 0, rng.random() * 0.2)))
            if not work.done():
                killed.append(await _kill(rng, pool, task, cluster, _nodes))
        return await work

    async def bounded() -> list[Any]:
        try:
            return await asyncio.wait_for(main(), PATIENCE)
        finally:
            await pool.close()

    try:
        mine = asyncio.run(bounded())
    except TimeoutError:
        raise BrokenPromiseError(f"a forest hangs after {killed}: {pool.health}") from None
    finally:
        task.close()
    if mine != alone(name):
        raise BrokenPromiseError(f"the forest of {name} is another one after {killed}")
    budget.check()
    return f"{len(killed)} killed, the same"


def _driver(address: str, name: str, place: Path) -> None:
    """A program of its own on the cluster: says which engines it has, and writes the forest."""
    import ray

    from rolltree.cluster.rays import RayTransport

    ray.init(address=address, log_to_driver=False, logging_level="warning")
    pool = PoolEngine(tiny_engine, 2, RayTransport(num_cpus=0), patience=PATIENCE, lives=LIVES)
    (place / "pids").write_text(json.dumps(pool.health.pids))

    async def main() -> list[Any]:
        try:
            return await grown(pool, TASKS[name])
        finally:
            await pool.close()

    (place / "forest").write_text(json.dumps(asyncio.run(main())))


def drivers(rng: random.Random, place: Path) -> str:
    """A driver killed at any moment, and the next one that does its work."""
    cluster, name, killed = _cluster(), rng.choice(sorted(TASKS)), 0
    command = [sys.executable, "-m", "tests.attack.clusters", cluster.address, name, str(place)]
    for last in (False, True):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        end = time.monotonic() + PATIENCE
        while child.poll() is None and not (place / "pids").exists() and time.monotonic() < end:
            time.sleep(0.01)
        if not last:
            time.sleep(rng.random() * 0.5)
            killed += child.poll() is None
            child.kill()
        _, said = child.communicate(timeout=PATIENCE)
        if last and child.returncode:
            raise BrokenPromiseError(f"the driver after a killed one ended with {child.returncode}: {said[-600:]!r}")
        _gone(json.loads((place / "pids").read_text()) if (place / "pids").exists() else [])
        (place / "pids").unlink(missing_ok=True)
    if json.loads((place / "forest").read_text()) != json.loads(json.dumps(alone(name))):
        raise BrokenPromiseError("the forest after a killed driver is another one")
    return f"{killed} killed, the same"


def _gone(pids: list[int]) -> None:
    """What a driver had started ends with it."""
    end = time.monotonic() + PATIENCE
    while alive := [pid for pid in pids if psutil.pid_exists(pid)]:
        if time.monotonic() > end:
            raise BrokenPromiseError(f"processes {alive} outlive their driver")
        time.sleep(0.05)


ATTACKS = (
    Attack("ray", "nodes, engines and verifiers of a Ray cluster killed", nodes, 3, 100),
    Attack("ray-drivers", "drivers of a Ray cluster killed", drivers, 1, 20),
)

if __name__ == "__main__":
    _driver(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
