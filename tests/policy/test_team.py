"""Threads that torch computes with: given back by whoever has computed, so that one team is all there is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rolltree.policy.device import _pauses  # pyright: ignore[reportPrivateUsage]

pytestmark = pytest.mark.skipif(not _pauses(), reason="torch does not run on GNU's OpenMP here")

COMMON = """
import asyncio, os, threading
import torch
from rolltree.policy.device import release_team
torch.set_num_threads(2)
WORK = torch.arange(1 << 20, dtype=torch.float32)
release_team()
def threads():
    return len(os.listdir("/proc/self/task"))
def fall_to(wanted):
    while threads() > wanted:  # for ever, where nobody ends them: the test's own limit ends that
        os.sched_yield()
    assert threads() == wanted
"""

HANDED_OVER = """
idle = threads()
first = WORK.sqrt().sum()
assert threads() == idle + 1, "a team of two is one thread more"
release_team()
fall_to(idle)
release_team()
assert WORK.sqrt().sum() == first, "the next operation takes a new one and splits its work the same"
assert threads() == idle + 1
"""

ENGINE = """
import numpy as np
from rolltree.engine.local import worker
from rolltree.engine.protocol import Request, Sampling
from tests.engine import tiny

given_back = threading.Event()
def told():
    release_team()
    if threading.current_thread().name == "rolltree-engine":
        given_back.set()
worker.release_team = told

def hook(so_far, logits):
    WORK.sqrt()  # computing in the engine's thread
    return logits

async def main():
    engine = tiny.engine()
    async with asyncio.timeout(300):
        idle = threads()
        WORK.sqrt()
        assert threads() == idle + 1
        for _ in range(2):
            given_back.clear()
            await engine.submit(Request(np.arange(1, 6, dtype=np.int32), Sampling(max_tokens=4, hook=hook)))
            while not given_back.is_set():
                await asyncio.sleep(0)
            fall_to(idle + 1)  # the engine's own thread, and neither its team nor that of who asked
    await engine.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("script", [HANDED_OVER, ENGINE], ids=["handed over", "engine"])
def test_only_who_computes_has_a_team(script):
    done = subprocess.run(
        [sys.executable, "-c", COMMON + script], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
