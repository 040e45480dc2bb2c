"""A vLLM that somebody else started in this process, as TRL does beside its trainer."""

import asyncio
import os
from types import SimpleNamespace

import numpy as np
import pytest

from rolltree.engine.protocol import Request, Sampling
from rolltree.integrations.trl.live import LiveEngine
from tests.engine.vllm.test_vllm import LOADED, PREFIX, truth

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def llm():
    """Started with TRL's settings, as far as a processor takes them."""
    from vllm import LLM

    from rolltree.engine.vllm.start import cpu_settings

    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "29511"}
    return LLM(
        model=str(LOADED.path), skip_tokenizer_init=True, dtype="float32", enforce_eager=True, max_num_seqs=64,
        gpu_memory_utilization=0.1, distributed_executor_backend="external_launcher", seed=0,
        logprobs_mode="processed_logprobs", **cpu_settings(),
    )  # fmt: skip


class Trainer(SimpleNamespace):
    """What the adapter reads of TRL's trainer under vllm_mode="colocate"."""

    @classmethod
    def of(cls, llm, *, sleeps=False):
        told = []
        generation = SimpleNamespace(
            llm=llm, enable_sleep_mode=sleeps, _llm_weights_sleeping=sleeps,
            sync_weights=lambda: told.append("weights"),
        )  # fmt: skip
        args = SimpleNamespace(use_vllm=True, vllm_mode="colocate")
        return cls(
            args=args, model=LOADED.model, processing_class=LOADED.codec.tokenizer, told=told,
            state=SimpleNamespace(global_step=3), accelerator=SimpleNamespace(unwrap_model=lambda model: model),
            vllm_generation=generation,
        )  # fmt: skip


def test_rollouts_stream_and_stop_in_the_vllm_beside_the_trainer(llm):
    async def main():
        live = LiveEngine()
        async with live.current(Trainer.of(llm)) as engine:
            assert engine.version == 3
            long = engine.submit(Request(PREFIX, Sampling(max_tokens=400, ignore_eos=True, seed=1)))
            asked = [Request(PREFIX, Sampling(max_tokens=6 + i, ignore_eos=True, seed=i)) for i in range(6)]
            asked.append(Request(PREFIX, Sampling(max_tokens=9, ignore_eos=True, seed=7, temperature=0.7, top_p=0.9)))
            others = [engine.submit(one) for one in asked]
            async for _ in long:
                if len(long.written) >= 8:
                    break
            long.stop("budget")
            return await long, [await other for other in others]

    stopped, whole = asyncio.run(main())
    assert 8 <= len(stopped.actions) < 400
    assert stopped.finish == "budget"
    assert [len(one.actions) for one in whole] == [6, 7, 8, 9, 10, 11, 9]
    for sample in [stopped, *whole]:
        assert set(sample.version.tolist()) == {3}
        assert np.abs(sample.logp - truth(LOADED.model, PREFIX, sample.actions)).max() < 1e-3
    # Another generation finds vLLM as it was left: nothing in flight, and at work.
    assert not llm.llm_engine.has_unfinished_requests()
    assert len(asyncio.run(main())[1]) == 7


def test_a_vllm_that_sleeps_is_awake_for_the_rollouts_alone(llm):
    trainer = Trainer.of(llm, sleeps=True)
    calls = trainer.told
    awake = SimpleNamespace(
        llm_engine=llm.llm_engine, wake_up=lambda tags: calls.append(("wake", *tags)),
        sleep=lambda level: calls.append(("sleep", level)),
    )  # fmt: skip
    trainer.vllm_generation.llm = awake

    async def main():
        async with LiveEngine().current(trainer) as engine:
            calls.append("rollouts")
            return await engine.submit(Request(PREFIX, Sampling(max_tokens=4, ignore_eos=True, seed=1)))

    assert len(asyncio.run(main()).actions) == 4
    assert calls == ["weights", ("wake", "kv_cache"), "rollouts", ("sleep", 2)]
    assert trainer.vllm_generation._llm_weights_sleeping
