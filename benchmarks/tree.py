"""How fast and how large a forest is: build, save, load, query and walk, at sizes ten times apart.

    python benchmarks/tree.py 100000 1000000

Trees of 32 nodes with about 32 actions each, every action with logp, sampling_logprob and weight version (16 bytes of
data), every node with notes, every leaf with a score. Memory is the growth of the process's resident set.
Processor seconds are what to compare on a busy machine.
"""

import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from rolltree.tree import Forest
from rolltree.tree.store.archive import open_forest
from rolltree.tree.store.parquet import load, save

NODES = 32
ACTIONS = 32
DATA = 16
QUERIES = {
    "SQL: nodes, actions and mean reward by role":
        "SELECT role, count(*), sum(length), avg(scores['reward']) FROM nodes GROUP BY role",
    "SQL: the ten trees whose policy is least sure":
        "SELECT tree, sum(list_sum(logp)) / sum(length) AS sure FROM nodes WHERE trains GROUP BY 1 ORDER BY 2 LIMIT 10",
}  # fmt: skip


def build(nodes: int, seed: int = 0) -> Forest:
    """A forest of about so many nodes, grown through the public calls."""
    rng = np.random.default_rng(seed)
    forest = Forest()
    for t in range(nodes // NODES):
        lengths = rng.integers(1, 2 * ACTIONS, NODES)
        actions = rng.integers(0, 64, lengths.sum(), dtype=np.int32)
        logp = -rng.random(lengths.sum(), dtype=np.float32)
        parents = (rng.random(NODES) * np.arange(NODES)).astype(int).tolist()
        ends = np.cumsum(lengths).tolist()
        tree = forest.plant(f"t{t}", actions[: ends[0]].copy(), task="bench", item=str(t % 4096))
        for i in range(1, NODES):
            own = slice(ends[i - 1], ends[i])
            given = logp[own].copy()
            tree.extend(
                parents[i],
                actions[own].copy(),
                logp=given,
                sampling_logprob=given.copy(),
                status="done",
                birth="boundary",
                version=np.full(len(given), t % 7, np.int32),
                notes={"run": [i, t]},
            )
        for leaf in tree.leaves():
            leaf.scores["reward"] = float(leaf.id % 2)
            tree.event("verify", leaf, "exact answer", score=leaf.scores["reward"])
    return forest


@dataclass
class Stopwatch:
    """Collects a row per measured call: seconds of the wall and of the processor, and growth of memory."""

    nodes: int
    actions: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, what: str, call: Callable[[], Any], *, memory: bool = False) -> Any:
        gc.collect()
        before, wall, cpu = _resident(), time.perf_counter(), time.process_time()
        result = call()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        row = {"what": what, "nodes": self.nodes, "seconds": round(wall, 4), "cpu_seconds": round(cpu, 4)}
        row["cpu_us_per_node"] = round(cpu / self.nodes * 1e6, 3)
        if memory:
            grown = _resident() - before
            row |= {"memory_mb": round(grown / 1e6), "bytes_per_action": round(grown / self.actions, 2)}
        self.rows.append(row)
        return result


def rows(nodes: int) -> list[dict[str, Any]]:
    """One row per operation on a forest of about so many nodes."""
    watch = Stopwatch(nodes // NODES * NODES, nodes * ACTIONS)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "forest"
        forest = watch("build node objects", lambda: build(nodes), memory=True)
        watch.actions = watch("walk node objects", lambda: sum(len(n) for t in forest for n in t.walk()))
        watch("save", lambda: save(forest, folder))
        del forest
        watch.rows += _archive_rows(watch, folder)
        forest = watch("load whole as node objects", lambda: load(folder), memory=True)
        disk = sum(p.stat().st_size for p in folder.iterdir())
    watch.rows.append({"what": "files", "nodes": watch.nodes, "bytes_per_action": round(disk / watch.actions, 2)})
    return watch.rows


def _archive_rows(watch: Stopwatch, folder: Path) -> list[dict[str, Any]]:
    inner = Stopwatch(watch.nodes, watch.actions)
    archive = inner("open as columns: shape of all trees", lambda: _shape(folder), memory=True)
    inner("open as columns: four numbers per action", lambda: _numbers(archive), memory=True)
    inner("walk columns: mean reward below every node", lambda: _backup(archive))
    inner("one tree as objects, first", lambda: archive.tree("t1"))
    inner("one tree as objects, next to it", lambda: archive.tree("t2"))
    for what, query in QUERIES.items():
        inner(what, lambda q=query: archive.sql(q))
    return inner.rows


def _resident() -> int:
    # Arrow keeps freed memory for its next column; only what is held counts.
    pa.default_memory_pool().release_unused()
    return psutil.Process().memory_info().rss


def _shape(folder: Path) -> Any:
    archive = open_forest(folder)
    assert len(archive.shape.parent) == len(archive.shape.depth) == len(archive.shape.end) == len(archive.shape.is_leaf)
    return archive


def _numbers(archive: Any) -> list[Any]:
    return [archive.ragged(name) for name in ("actions", "logp", "sampling_logprob", "version")]


def _backup(archive: Any) -> Any:
    leaves = np.concatenate([[0], np.cumsum(archive.shape.is_leaf)])
    reward = np.concatenate([[0.0], np.cumsum(np.where(archive.shape.is_leaf, archive.scores("reward"), 0.0))])
    first = np.arange(len(archive))
    return (reward[archive.shape.end] - reward[first]) / (leaves[archive.shape.end] - leaves[first])


def main(sizes: list[int]) -> None:
    measured = {size: rows(size) for size in sizes}
    for row in (r for size in sizes for r in measured[size]):
        print(json.dumps(row))
    first, last = measured[sizes[0]], measured[sizes[-1]]
    if len(sizes) > 1:
        print(f"processor time per node at {sizes[-1]} over {sizes[0]} nodes:")
        for small, large in zip(first, last, strict=True):
            if "cpu_us_per_node" in small:
                growth = large["cpu_us_per_node"] / max(small["cpu_us_per_node"], 1e-3)
                print(f"  {growth:5.2f}  {small['what']}")


if __name__ == "__main__":
    main([int(a) for a in sys.argv[1:]] or [100_000, 1_000_000])
