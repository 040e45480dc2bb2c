"""Environments and verifiers in other processes: the same forests, whatever dies."""

import asyncio
import itertools
from dataclasses import dataclass
from typing import Any

import pytest

from rolltree.cluster import ClusterError, LostError, RemoteTask
from rolltree.control.hints import solver
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.generate.setting import Patience
from rolltree.task.nano.arithmetic import Arithmetic
from rolltree.task.protocol import Item, Task, Verdict
from rolltree.testing.task import check_functional, check_task
from rolltree.testing.tiny import Walk, tiny_engine
from rolltree.tree import Forest
from tests.cluster.inprocess import InProcess
from tests.cluster.test_faults import forest_of


def walked(task: Task, patience: Patience | None = None) -> Forest:
    items = list(itertools.islice(Walk().items("train"), 4))
    return asyncio.run(grow(Independent(4), tiny_engine(), task, items, seed=3, patience=patience))


class Mortal(InProcess):
    """Every `every`-th call of a step or verdict kills the process it is asked of."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every = every
        self.asked = 0

    def spawn(self, kind: Any, *args: Any) -> Any:
        process = super().spawn(kind, *args)
        call = process.call

        async def counted(method: str, *rest: Any) -> Any:
            self.asked += method != "ping"
            if method != "ping" and self.asked % self.every == 0:
                process.kill()
            return await call(method, *rest)

        process.call = counted
        return process


def test_it_is_the_task() -> None:
    task = RemoteTask(Walk(), 2, InProcess())
    item = next(Walk().items("train"))
    check_task(task)
    asyncio.run(check_functional(task, item, ["ab!", "zz!"]))
    # What the task offers beyond the contract is there too.
    sums = RemoteTask(Arithmetic(), 1, InProcess())
    one = next(sums.items("train"))
    told, own = solver(sums), solver(Arithmetic())
    assert told is not None
    assert own is not None
    assert told(one) == own(one)
    with pytest.raises(ClusterError, match="0 task workers"):
        RemoteTask(Walk(), 0, InProcess())


@pytest.mark.parametrize("every", [2, 5])
def test_deaths_are_retried_and_the_forest_is_the_same(every: int) -> None:
    transport = Mortal(every)
    task = RemoteTask(Walk(), 3, transport)
    forest = walked(task, Patience(tries=20))
    assert forest_of(forest) == forest_of(walked(Walk()))
    assert 0 < task.lost <= transport.asked // every
    assert len(transport.alive) == 3
    retries = [e for tree in forest for e in tree.events if e.kind == "retry"]
    # Calls that shared a process die together.
    assert len(retries) >= task.lost
    assert "the process died" in retries[0].why


def test_what_stays_without_an_answer_is_failed_and_never_scored() -> None:
    task = RemoteTask(Walk(), 2, Mortal(1))
    forest = walked(task)
    leaves = [leaf for _, leaf in forest.leaves()]
    assert {leaf.status for leaf in leaves} == {"failed"}
    assert not any("reward" in leaf.scores for leaf in leaves)


class Stuck(InProcess):
    """Of the first process no call ever returns."""

    def spawn(self, kind: Any, *args: Any) -> Any:
        process = super().spawn(kind, *args)
        if len(self.processes) == 1:
            call = process.call

            async def never(method: str, *rest: Any) -> Any:
                return await call("hang")

            async def hang() -> None:
                await asyncio.Event().wait()

            host = kind(*args)
            host.hang = hang
            process.host, process.call = host, never
        return process


def test_a_process_that_hangs_is_given_up_and_replaced() -> None:
    task = RemoteTask(Walk(), 1, Stuck(), hung=0.5)
    forest = walked(task, Patience(tries=20, step_seconds=0.5, verify_seconds=0.5))
    assert forest_of(forest) == forest_of(walked(Walk()))
    assert task.lost >= 1


def test_an_exception_of_the_task_is_its_own() -> None:
    @dataclass(frozen=True)
    class Broken(Walk):
        async def verify(self, item: Item, state: Any, text: str) -> Verdict:
            raise ZeroDivisionError("by nought")

    task = RemoteTask(Broken(), 1, InProcess())
    forest = walked(task)
    fails = [e for tree in forest for e in tree.events if e.kind == "fail"]
    assert fails
    assert all("ZeroDivisionError: by nought" in e.why for e in fails)
    assert task.lost == 0


def test_idle_workers_that_died_with_another_are_replaced_before_the_next_try() -> None:
    async def main() -> None:
        transport = InProcess()
        task = RemoteTask(Walk(), 4, transport)
        item = next(task.items("train"))
        for process in transport.processes[:3]:
            process.kill()
        with pytest.raises(RuntimeError, match="the process died"):
            await task.verify(item, 2, "x")
        for _ in range(8):
            assert (await task.verify(item, 2, "x")).score == 1
        assert task.lost == 3

    asyncio.run(main())


def test_a_dead_process_says_so() -> None:
    process = InProcess().spawn(Walk)
    process.kill()
    with pytest.raises(LostError):
        asyncio.run(process.call("start"))
