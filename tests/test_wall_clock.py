"""A wall clock set back and forward ends nothing early, holds nothing up and lets nobody into a folder in use."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rolltree.compare.progress import Meter
from rolltree.control.ledger import Budget, Limits
from rolltree.engine.run import Watchdog
from rolltree.gateway.gateway import Gateway
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.generate.setting import Gone, Patience, attempt
from rolltree.task.sandbox.box import Box
from rolltree.task.sandbox.run import run_python
from rolltree.testing.tiny import Walk, tiny_engine
from rolltree.training.config import TrainError
from rolltree.training.lock import LOCK, FolderLock
from tests.task.sandbox.test_sandbox import unable
from tests.train.test_run_folder import ended, forked

ROOT = Path(__file__).parents[1]
WALL = re.compile(
    r"\btime\.(time|time_ns|localtime|gmtime|ctime|CLOCK_REALTIME)\b|\bdatetime\.(now|utcnow|today)\b|\bdate\.today\b"
    r"|from time import"
)
MOMENTS = {
    "rolltree/integrations/trl/worker.py": "when a sample was made, for TRL's tables",
    "rolltree/gateway/agents/outside.py": "what an agent is told, recorded and given again",
    "rolltree/gateway/server.py": "the field `created` of an answer",
    "rolltree/view/state.py": "news of a run on another machine; a date far ahead counts as one long ago",
}
"""Files that may read the wall clock, each for a moment that is shown and not for how long something takes."""
YEAR = 366 * 86_400.0
HOPS = st.lists(st.sampled_from((-10 * YEAR, -3600.0, -1.0, 0.0, 1.0, 3600.0, 10 * YEAR)), min_size=1, max_size=20)


@pytest.fixture(scope="module", autouse=True)
def clock() -> Iterator[list[float]]:
    """Steps of the wall clock, one at each look at it; a test may put others in."""
    hops, whole, looks = [10 * YEAR, -20 * YEAR], time.time, itertools.count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: whole() + sum(hops[: next(looks) % (len(hops) + 1)]))
        patch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))
        yield hops


def test_nothing_but_a_moment_is_read_from_the_wall_clock() -> None:
    found = {
        str(file.relative_to(ROOT))
        for folder in ("rolltree", "studies")
        for file in (ROOT / folder).rglob("*.py")
        if WALL.search(file.read_text(encoding="utf-8"))
    }
    assert found == MOMENTS.keys()


@given(HOPS)
def test_waiting_lasts_as_long_as_it_says(clock: list[float], hops: list[float]) -> None:
    clock[:] = hops

    async def never() -> None:
        await asyncio.Event().wait()

    async def soon() -> str:
        for _ in range(3):
            time.time()
            await asyncio.sleep(0)
        return "done"

    async def tried(call: object, seconds: float) -> object:
        return await attempt("x", call, Patience(tries=1), seconds, on_retry=lambda *_: None)  # type: ignore[arg-type]

    assert asyncio.run(tried(soon, 60.0)) == "done"
    with pytest.raises(Gone, match="no answer within"):
        asyncio.run(tried(never, 0.001))


@given(HOPS)
def test_deadlines_of_budgets_sessions_and_watchdogs_neither_come_nor_go(clock: list[float], hops: list[float]) -> None:
    clock[:] = hops

    class Standing:
        def at_work(self) -> int:
            return 1

        def doing(self) -> str:
            return "nothing"

    budget, over, engine = Budget(Limits(seconds=600.0)), Budget(Limits(seconds=0.0)), Standing()
    gateway, meter, told = Gateway(tiny_engine()), Meter(Console(), 10, worked=1.0), list[str]()
    dog, session = Watchdog(engine, silence=600.0), gateway.open("a")
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("rolltree.engine")
    log.addHandler(handler)
    try:
        for _ in hops:
            time.time()
            assert 0 < budget.seconds_left <= 600
            assert budget.child("x").seconds_left <= 600
            assert over.seconds_left == 0
            dog.look()
            gateway.expire()
            assert 0 <= (meter.left() or 0.0) < 6000
    finally:
        log.removeHandler(handler)
    assert not told
    assert not session.ended


def test_rollouts_are_the_same_under_a_clock_that_jumps(clock: list[float]) -> None:
    def grown() -> list[object]:
        items = list(itertools.islice(Walk().items("train"), 3))
        forest = asyncio.run(grow(Independent(3), tiny_engine(), Walk(), items, budget=Budget(Limits(seconds=600.0))))
        return [(leaf.status, leaf.finish, tree.prefix(leaf).tolist()) for tree in forest for leaf in tree.leaves()]

    jumping = grown()
    clock[:] = [0.0]
    assert jumping == grown()
    assert {status for status, *_ in jumping} == {"done"}  # type: ignore[misc]


@pytest.mark.skipif(bool(unable()), reason=unable())
def test_a_program_gets_its_time_and_no_more() -> None:
    box = Box(seconds=20, cpu_seconds=5)
    assert asyncio.run(run_python("print(1)", box)).text == "1\n"
    ran = asyncio.run(run_python("import time\ntime.sleep(1e6)", Box(seconds=0.2, cpu_seconds=5)))
    assert ran.ended == "time"
    assert 0 <= ran.seconds < 600


@pytest.mark.parametrize("date", [1.0, 4e9])
def test_a_lock_belongs_to_a_process_whatever_the_dates_on_its_file(tmp_path: Path, date: float) -> None:
    ready = os.pipe()

    def hold() -> None:
        lock = FolderLock(tmp_path)
        os.write(ready[1], b"x")
        signal.pause()
        lock.release()

    holder = forked(hold)
    assert os.read(ready[0], 1) == b"x"
    os.utime(tmp_path / LOCK, (date, date))
    with pytest.raises(TrainError, match=f"in use by process {holder};"):
        FolderLock(tmp_path)
    os.kill(holder, signal.SIGKILL)
    assert ended(holder) == -signal.SIGKILL
    os.utime(tmp_path / LOCK, (date, date))
    FolderLock(tmp_path).release()
    for end in ready:
        os.close(end)


def test_three_starters_under_jumping_clocks_are_never_two_inside(tmp_path: Path) -> None:
    mark = tmp_path / "inside"

    def come_and_go() -> None:
        got = 0
        while got < 50:
            try:
                lock = FolderLock(tmp_path)
            except TrainError:
                continue
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            now = time.time()
            os.utime(tmp_path / LOCK, (abs(now), abs(now)))
            mark.unlink()
            lock.release()
            got += 1

    children = [forked(come_and_go) for _ in range(3)]
    assert [ended(child) for child in children] == [0, 0, 0]
