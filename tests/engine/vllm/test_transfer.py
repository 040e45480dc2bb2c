"""Weights by vLLM's own transfer: its calls, in its order, around our tensors. The way across is one for processors."""

import numpy as np
import pytest
import torch

from rolltree.engine.protocol import EngineError, Request, Sampling
from rolltree.engine.vllm import start
from rolltree.engine.vllm.transfer import Transfer, ipc, nccl
from tests.engine.vllm.conftest import SETTINGS
from tests.engine.vllm.test_vllm import LOADED, PREFIX, moved, truth

pytestmark = pytest.mark.vllm


def test_weights_cross_by_vllms_own_transfer_while_samples_are_written(run):
    from tests.engine.vllm import loopback

    async def main():
        engine = start(
            "nano", seed=0, **SETTINGS, weight_transfer_config={"backend": loopback.NAME},
            worker_extension_cls="tests.engine.vllm.loopback.Extension",
        )  # fmt: skip
        engine.backend._transfer = Transfer(engine.backend._llm, lambda: loopback.Begin(rank=0))
        try:
            models = {0: LOADED.model}
            for version in (1, 2):
                models[version] = moved(0.02, version)
                flying = engine.submit(Request(PREFIX, Sampling(max_tokens=300, ignore_eos=True, seed=version)))
                async for _ in flying:
                    break
                await engine.update_weights(models[version], version)
                got = await flying
                assert set(got.version.tolist()) == {version - 1, version}
                for i, one in enumerate(got.version.tolist()):
                    if i in (0, len(got.actions) - 1):
                        wanted = truth(models[one], np.concatenate([PREFIX, got.actions[:i]]), got.actions[i : i + 1])
                        assert np.abs(got.logp[i] - wanted).max() < 1e-3
            assert await engine.backend._llm.get_weight_version() == "2"
        finally:
            await engine.close()

    run(main())


def test_memory_of_a_card_is_refused_where_there_is_none(run):
    with pytest.raises(EngineError, match="needs trainer and vLLM on one card; it sees 0"):
        start("nano", weights="ipc", **SETTINGS)
    with pytest.raises(EngineError, match=r"vLLM cannot sleep on cpu.*leave out sleep"):
        start("nano", sleep=True, **SETTINGS)
    with pytest.raises(EngineError, match="choose files or ipc or nccl"):
        start("nano", weights="pigeon", **SETTINGS)
    with pytest.raises(EngineError, match="trained on the processor"):
        run(Transfer(None, ipc, "ipc", 1).send(LOADED.model.state_dict()))
    with pytest.raises(EngineError, match="needs a card for the trainer beside 2 of vLLM's, and it sees 0"):
        start("nano", weights="nccl", tensor_parallel_size=2, **SETTINGS)


def test_the_group_across_cards_is_the_trainer_and_all_workers(run):
    info = nccl(2)
    assert (info.rank, info.world_size, info.backend) == (0, 3, "nccl")
    assert info.master_port != nccl(2).master_port

    class OnCard:
        device = torch.device("cuda", 1)

    with pytest.raises(EngineError, match=r"trained on cuda:1, which vLLM takes.*--device cuda:2"):
        run(Transfer(None, nccl, "nccl", 2).send({"weight": OnCard()}))
