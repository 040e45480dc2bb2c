"""One vLLM for all tests of this folder, in one event loop that outlives each of them."""

import asyncio
import os

import pytest

from rolltree.engine.vllm import start

# Read by vLLM's processes: small, on the threads given, and nothing compiled for a model this small.
os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "TORCHDYNAMO_DISABLE": "1"}
SETTINGS = {"gpu_memory_utilization": 0.1, "max_batch": 64}


@pytest.fixture(scope="session")
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(scope="session")
def engine(loop):
    async def up():
        return start("nano", seed=0, **SETTINGS)

    engine = loop.run_until_complete(up())
    yield engine
    loop.run_until_complete(engine.close())


@pytest.fixture
def run(loop):
    return lambda work: loop.run_until_complete(asyncio.wait_for(work, 300))
