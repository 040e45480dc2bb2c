"""The HTTP engine against a real vLLM server on loopback: exact, updated in place, killed and started again mid-run."""

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest

from rolltree.control.ledger import Budget
from rolltree.engine.http import connect
from rolltree.engine.protocol import Request, Sampling
from rolltree.engine.segments import SegmentPatience
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.task.registry import load_task
from rolltree.testing.engine import check_running
from tests.engine.vllm.test_vllm import LOADED, PREFIX, moved, truth

pytestmark = pytest.mark.vllm

STEADY = SegmentPatience(tries=1000, first=0.5, longest=2.0)


class VllmServer:
    """`vllm serve` as anybody starts it, with the developer endpoints that take weights."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process = None

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(LOADED.path)]
        command += [
            "--served-model-name",
            "nano",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--dtype",
            "float32",
        ]
        command += ["--enforce-eager", "--max-logprobs", "99", "--no-enable-chunked-prefill", "--block-size", "32"]
        command += ["--max-num-batched-tokens", "8192", "--max-num-seqs", "64", "--gpu-memory-utilization", "0.1"]
        command += ["--enable-prompt-tokens-details", "--uvicorn-log-level", "warning"]
        self.process = subprocess.Popen(
            command, env=os.environ | {"VLLM_SERVER_DEV_MODE": "1"}, start_new_session=True,
        )  # fmt: skip

    def wait(self):
        until = time.monotonic() + 900
        while time.monotonic() < until:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.address}/v1/models", timeout=5):
                return
            assert self.process.poll() is None, "the server ended while it started"
            time.sleep(0.5)
        raise AssertionError("the server did not start in 15 minutes")

    def kill(self):
        """Without a word, all of its processes."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture(scope="module")
def server():
    server = VllmServer()
    server.start()
    try:
        server.wait()
        yield server
    finally:
        server.kill()


def test_a_served_policy_keeps_the_contract_takes_weights_and_survives_a_kill(server):
    async def main():
        engine = await connect(server.address, LOADED.codec, patience=STEADY)
        assert {"update", "score", "entropy:full"} <= engine.capabilities.features
        # The distribution was tested in the process; over the wire it would only be slow.
        await check_running(
            engine, PREFIX.tolist(), skip=["sampling_follows_the_distribution", "greedy_takes_the_best"]
        )
        await updated(engine)
        await killed(engine, server)
        await engine.close()

    asyncio.run(main())


async def updated(engine):
    """New weights through the server's own endpoints, and the old ones again."""
    new = moved(0.02, seed=2)
    for model in (new, LOADED.model):
        for _ in range(5):  # a loaded machine may write a whole text before its first piece is read here
            version = engine.version + 1
            run = engine.submit(Request(PREFIX, Sampling(max_tokens=400, ignore_eos=True, seed=1)))
            async for _ in run:
                break
            await engine.update_weights(model, version)
            got = await run
            if got.version[-1] == version:
                break
        cut = int((got.version < version).sum())
        assert got.version[-1] == version
        assert np.abs(got.logp[cut:] - truth(model, PREFIX, got.actions)[cut:]).max() < 1e-3


async def killed(engine, server):
    """Every leaf comes, each token once, while the server dies in the middle and comes back."""
    task = load_task("countdown")
    items = list(itertools.islice(task.items("train", 0), 6))
    for _ in range(5):  # a loaded machine may read all of the texts at once, when they have ended
        budget = Budget()
        growing = asyncio.ensure_future(grow(Independent(8), engine, task, items, seed=0, budget=budget))
        while not growing.done() and not any(run.written for run in engine.in_flight):
            await asyncio.sleep(0)
        if not growing.done():
            break
        growing.result()
    server.kill()
    assert not growing.done()
    server.start()
    while not (await asyncio.wait([growing], timeout=1))[0]:
        assert server.process.poll() is None, "the server ended after it was started again"
    forest = await growing
    leaves = list(forest.leaves())
    assert len(leaves) == 48
    assert all(leaf.status == "done" for _, leaf in leaves)
    assert budget.spent.decoded == sum(len(n) for tree in forest for n in tree if n.role == "policy")
    for tree, leaf in leaves:
        before = np.concatenate([n.actions for n in tree.path(leaf)[:-1]])
        assert np.abs(leaf.logp - truth(LOADED.model, before, leaf.actions)).max(initial=0) < 1e-3
