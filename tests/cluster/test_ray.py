"""The same on a real Ray cluster of several nodes, with processes and nodes killed (make test-ray)."""

import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rolltree.cli import main
from rolltree.cluster import ClusterError, Health, PoolEngine, RemoteTask
from rolltree.cluster.rays import RayTransport
from rolltree.control.ledger import Budget
from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import EngineError, Request, Sample, Sampling
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.generate.setting import Patience
from rolltree.task.protocol import Task
from rolltree.testing.engine import ENGINE_CHECKS
from rolltree.testing.faulty import Wrapped
from rolltree.testing.tiny import CODEC, SpellTask, Walk, policy, tiny_engine
from rolltree.tree import Forest
from tests.cluster.deadly import Deadly
from tests.cluster.test_faults import PREFIX, forest_of
from tests.engine import tiny

pytestmark = pytest.mark.ray
ray = pytest.importorskip("ray")

STORE = 80 << 20


@pytest.fixture(scope="module")
def cluster() -> Generator[Any]:
    from ray.cluster_utils import Cluster

    made = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False},
    )
    try:
        made.add_node(num_cpus=1, object_store_memory=STORE)
        ray.init(address=made.address, log_to_driver=False, logging_level="warning")
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.fixture(scope="module")
def pool(cluster: Any) -> Generator[PoolEngine]:
    made = PoolEngine(tiny_engine, 3, RayTransport(num_cpus=0), patience=300)
    yield made
    asyncio.run(made.close())


class Kept(Wrapped):
    """The pool, which stays for the next check."""

    async def close(self) -> None:
        await self.inner.resume()


def grown(engine: Any, task: Task, budget: Budget | None = None, patience: Patience | None = None) -> Any:
    items = list(itertools.islice(task.items("train"), 8))
    return grow(Independent(4), engine, task, items, seed=5, budget=budget, patience=patience)


def alone(task: Task) -> Forest:
    return asyncio.run(grown(tiny_engine(), task))


@pytest.mark.parametrize("check", [check for check in ENGINE_CHECKS if check != "sampling_follows_the_distribution"])
def test_actors_keep_the_contract(check: str, pool: PoolEngine) -> None:
    ENGINE_CHECKS[check](lambda: Kept(pool))


def test_engines_are_spread_and_share_the_work(pool: PoolEngine, cluster: Any) -> None:
    assert len(set(pool.health.pids)) == 3
    assert os.getpid() not in pool.health.pids
    assert pool.capabilities == tiny_engine().capabilities
    assert forest_of(asyncio.run(grown(pool, Walk()))) == forest_of(alone(Walk()))


def test_a_hook_travels_and_one_that_cannot_is_refused(pool: PoolEngine) -> None:
    async def ask(hook: Any) -> Any:
        return await pool.submit(Request(PREFIX, Sampling(max_tokens=6, ignore_eos=True, seed=1, hook=hook)))

    banned = 7

    def ban(generated: Any, logits: Any) -> Any:
        logits[:banned] = -np.inf
        return logits

    assert (asyncio.run(ask(ban)).actions >= banned).all()
    lock = pool._thread  # a thread cannot be pickled
    with pytest.raises(EngineError, match="its hook must hold only values that can be pickled"):
        asyncio.run(ask(lambda generated, logits: (lock, logits)[1]))


def test_killed_engines_change_nothing(pool: PoolEngine) -> None:
    async def main() -> tuple[Forest, Budget]:
        budget = Budget()
        work = asyncio.ensure_future(grown(pool, SpellTask(), budget))
        while not any(pool.health.loads):
            await asyncio.sleep(0)
        # The two busiest, in the middle of their work.
        loads = sorted(zip(pool.health.loads, pool.health.pids, strict=True), reverse=True)
        for _, pid in loads[:2]:
            os.kill(pid, signal.SIGKILL)
        return await work, budget

    before = pool.health
    forest, budget = asyncio.run(main())
    assert forest_of(forest) == forest_of(alone(SpellTask()))
    assert pool.health.lost == before.lost + 2
    assert pool.health.reissued > before.reissued
    budget.check()
    assert budget.spent.decoded == sum(len(n) for tree in forest for n in tree if n.role == "policy")
    asyncio.run(pool.resize(3))
    assert pool.health.engines == 3
    assert len(set(pool.health.pids)) == 3


def test_weights_reach_everybody_and_the_sizes_change(pool: PoolEngine) -> None:
    def other(prefix: tuple[int, ...]) -> list[float]:
        return policy(prefix)[::-1]

    async def versions() -> set[int]:
        asked = [Request(PREFIX, Sampling(max_tokens=3, ignore_eos=True, seed=s)) for s in range(60)]
        ended = await asyncio.gather(*(pool.submit(request) for request in asked))
        return {int(v) for sample in ended for v in sample.version}

    async def main() -> None:
        version = pool.version + 1
        await pool.update_weights(other, version)
        assert await versions() == {version}
        await pool.resize(1)
        await pool.resize(2)
        assert pool.health.engines == 2
        assert await versions() == {version}
        await pool.update_weights(policy, version + 1)
        assert await versions() == {version + 1}

    asyncio.run(main())


def test_a_pool_that_grows_gives_the_new_engines_of_what_waits(cluster: Any) -> None:
    asked = [Request(PREFIX, Sampling(max_tokens=30, ignore_eos=True, seed=i), affinity=str(i // 4)) for i in range(24)]

    async def alone() -> list[Sample]:
        engine = tiny.engine()
        samples = await asyncio.gather(*map(engine.submit, asked))
        await engine.close()
        return samples

    async def main() -> tuple[list[Sample], Health]:
        runs = [made.submit(asked[0])]
        async for _ in runs[0]:
            break
        await made.pause()
        runs += map(made.submit, asked[1:])
        await made.resize(3)
        between = made.health
        await made.resume()
        return await asyncio.gather(*runs), between

    made = PoolEngine(partial(tiny.engine, max_batch=2), 1, RayTransport(num_cpus=0), patience=300)
    try:
        samples, between = asyncio.run(main())
        assert len(between.pids) == 3
        # Whole prefixes moved; some of them twice, where one engine came after the other.
        # The one that was read before the pause may have ended by then.
        assert sorted(between.loads) in ([8, 8, 8], [7, 8, 8])
        assert between.moved >= 16
        for got, expected in zip(samples, asyncio.run(alone()), strict=True):
            assert np.array_equal(got.actions, expected.actions)
            assert got.finish == expected.finish
        assert made.health.lost == made.health.reissued == made.health.in_flight == 0
    finally:
        asyncio.run(made.close())


def test_verifiers_that_die_are_failed_nodes_and_all_others_are_scored(cluster: Any) -> None:
    task = RemoteTask(Deadly(kills="b"), 2, RayTransport(num_cpus=0))
    try:
        forest = asyncio.run(grown(tiny_engine(), task, patience=Patience(tries=2, verify_seconds=300)))
    finally:
        task.close()
    expected = {(tree.item, leaf.id): leaf for tree in alone(SpellTask()) for leaf in tree.leaves()}
    deadly = scored = 0
    for tree in forest:
        for leaf in tree.leaves():
            first = CODEC.decode(leaf.actions)[:1]
            deadly += first == "b"
            if leaf.status == "failed":  # a deadly one, or one that shared a process with it both times
                assert "reward" not in leaf.scores
            else:
                assert first != "b"
                assert leaf.scores["reward"] == expected[tree.item, leaf.id].scores["reward"]
                scored += 1
    assert deadly == 1
    assert scored > 0
    assert task.lost >= 2


def test_a_node_that_goes_changes_nothing(cluster: Any) -> None:
    node = cluster.add_node(num_cpus=2, object_store_memory=STORE, resources={"here": 8})
    transport = OnNode("here")
    made = PoolEngine(tiny_engine, 2, transport, patience=300)
    task = RemoteTask(Walk(), 2, transport)

    async def main() -> Forest:
        work = asyncio.ensure_future(
            grown(made, task, patience=Patience(tries=8, step_seconds=300, verify_seconds=300))
        )
        while not any(made.health.loads):
            await asyncio.sleep(0)
        transport.resource = None  # what comes after them is placed anywhere
        await asyncio.to_thread(cluster.remove_node, node, False)
        return await work

    try:
        assert forest_of(asyncio.run(main())) == forest_of(alone(Walk()))
        assert made.health.lost == 2
        assert task.lost >= 1
    finally:
        task.close()
        asyncio.run(made.close())


class OnNode(RayTransport):
    """Spawns where a resource is, as long as it names one."""

    def __init__(self, resource: str) -> None:
        super().__init__(num_cpus=0)
        self.resource: str | None = resource

    def spawn(self, kind: Any, *args: Any) -> Any:
        self._options["resources"] = {self.resource: 1} if self.resource else {}
        return super().spawn(kind, *args)


def test_no_room_is_said_in_time(cluster: Any) -> None:
    with pytest.raises(ClusterError, match="no room"):
        PoolEngine(tiny_engine, 1, RayTransport(num_cpus=64), patience=1)


def test_an_engine_that_cannot_be_made_says_why(cluster: Any) -> None:
    def make() -> Any:
        raise EngineError("no such weights")

    with pytest.raises(EngineError, match="no such weights"):
        PoolEngine(make, 1, RayTransport(num_cpus=0))


def test_the_command_line_runs_on_a_cluster(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["rollout", "grpo", "--task", "countdown", "--items", "2", "--group", "4", "--json"]
    assert main(asked) == 0
    here = json.loads(capsys.readouterr().out)
    assert main([*asked, "--cluster", "local:1"]) == 0
    there = json.loads(capsys.readouterr().out)
    for name in ("trees", "leaves", "failed", "decoded", "mean_reward"):
        assert there[name] == here[name], name
    assert there["engines_lost"] == 0
    train = ["train", "grpo", "--task", "countdown", "--steps", "1", "--prompts", "2", "--group", "2", "--out", "run"]
    assert main([*train, "--eval-every", "0", "--cluster", "local:1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["train"]["budget/decoded_total"] > 0


AGENT = Path(__file__).parents[2] / "examples" / "agents" / "calculator_agent.py"
GROWN = {
    # Flat groups start agents where the first turn of each rollout is answered; trees at calls replay them as well.
    "grpo": ["--group", "4"],
    "treepo": ["--leaves", "4", "--segment", "0"],
}


@pytest.mark.parametrize("recipe", GROWN)
def test_workers_of_a_cluster_start_agents_of_their_own(
    recipe: str, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    task = ["--task", "calculator?fail_rate=0", "--level", "1", "--agent", f"{sys.executable} {AGENT}"]
    asked = ["rollout", recipe, *GROWN[recipe], *task, "--items", "2", "--json"]
    told = []
    for more in ([], ["--cluster", "local:1"]):
        assert main([*asked, *more]) == 0
        told.append(json.loads(capsys.readouterr().out))
    for name in ("trees", "leaves", "failed", "decoded", "mean_reward"):
        assert told[0][name] == told[1][name], name
    assert (told[0]["failed"], told[0]["leaves"]) == (0, 8)


def test_training_with_an_agent_on_a_cluster(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    task = ["--task", "calculator?fail_rate=0", "--level", "1", "--agent", f"{sys.executable} {AGENT}"]
    train = ["train", "grpo", *task, "--steps", "2", "--prompts", "2", "--group", "2", "--eval-every", "0"]
    assert main([*train, "--cluster", "local:1", "--out", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["train"]["budget/decoded_total"] > 0


class DiesAt(RayTransport):
    """Kills the first process that is asked for a method, right before it is asked."""

    def __init__(self) -> None:
        super().__init__(num_cpus=0)
        self.method = ""

    def spawn(self, kind: Any, *args: Any) -> Any:
        return _Killed(super().spawn(kind, *args), self)


class _Killed:
    """An actor whose process dies then."""

    def __init__(self, remote: Any, transport: DiesAt) -> None:
        self.remote, self.transport, self.pid = remote, transport, 0
        self.pack, self.kill = remote.pack, remote.kill

    async def call(self, method: str, *args: Any) -> Any:
        self._die_at(method)
        answer = await self.remote.call(method, *args)
        if method == "open":
            self.pid = answer.pid
        return answer

    async def parted(self, method: str, *args: Any) -> Any:
        self._die_at(method)
        return await self.remote.parted(method, *args)

    def _die_at(self, method: str) -> None:
        if method == self.transport.method:
            self.transport.method = ""
            os.kill(self.pid, signal.SIGKILL)


def held(until_gone: Path) -> LocalEngine:
    """An engine that stops by itself after ten steps while a file is there.

    Engines do not run at the same pace: without it, one may have nothing left to do when the pool is paused.
    """
    engine = tiny.engine(max_tokens_in_memory=1 << 14)
    worker = engine._worker
    step, steps = worker.core.step, itertools.count(1)

    def counted() -> Any:
        news = step()
        if next(steps) == 10 and until_gone.exists():
            worker.paused = True
        return news

    worker.core.step = counted  # type: ignore[method-assign]
    return engine


LONG_PROMPTS = [np.random.default_rng(i).integers(1, 20, 64).astype(np.int32) for i in range(4)]


@pytest.mark.parametrize(
    ("method", "seconds"), [("", 60.0), ("", 0.0), ("export", 60.0), ("take_over", 60.0)],
    ids=["handed over", "read again", "giver killed", "taker killed"],
)  # fmt: skip
def test_a_shrink_under_load_loses_nothing(method: str, seconds: float, cluster: Any, tmp_path: Path) -> None:
    asked = [
        Request(LONG_PROMPTS[i // 8], Sampling(max_tokens=60, ignore_eos=True, seed=i), affinity=str(i // 8))
        for i in range(32)
    ]

    async def alone() -> list[Sample]:
        engine = tiny.engine()
        try:
            return await asyncio.gather(*map(engine.submit, asked))
        finally:
            await engine.close()

    async def main() -> tuple[list[Sample], Health]:
        runs = list(map(made.submit, asked))
        for run in runs[::8]:
            async for _ in run:
                break
        await made.pause()
        hold.unlink()
        assert min(made.health.loads) > 0
        transport.method = method
        await made.resize(2)
        await made.resume()
        samples = await asyncio.gather(*runs)
        await made.resize(2)
        return list(samples), made.health

    hold = tmp_path / "hold"
    hold.touch()
    transport = DiesAt()
    made = PoolEngine(partial(held, hold), 3, transport, patience=300, handover=seconds, follow=True)
    try:
        samples, health = asyncio.run(main())
        for got, expected in zip(samples, asyncio.run(alone()), strict=True):
            assert np.array_equal(got.actions, expected.actions)
            assert np.allclose(got.logp, expected.logp, atol=1e-5)
            assert got.finish == expected.finish
        assert (health.engines, health.in_flight) == (2, 0)
        assert health.moved > 0
        if method:
            assert health.not_handed["lost"] >= 1
            assert health.lost == 1
        elif seconds:
            assert health.handed_tokens >= health.spared >= 64
            assert health.not_handed == {}
        else:
            assert health.handed_tokens == 0
    finally:
        asyncio.run(made.close())
