"""Adapters alone to vLLM: what it then writes and reads is the law of the adapted model, version by version."""

import copy

import numpy as np
import pytest
import torch

from rolltree.engine.protocol import EngineError, Request, Sampling
from rolltree.engine.vllm import start
from rolltree.policy import publish
from rolltree.policy.language import LanguagePolicy
from rolltree.policy.lora import with_lora
from tests.engine.vllm.conftest import SETTINGS
from tests.engine.vllm.test_vllm import LOADED, PREFIX, truth

pytestmark = pytest.mark.vllm


@torch.no_grad()
def adapted(seed):
    """The shipped policy under adapters that say something."""
    torch.manual_seed(seed)
    targets = ("q_proj", "v_proj", "o_proj", "gate_proj", "down_proj")
    model = with_lora(copy.deepcopy(LOADED.model), rank=4, alpha=6.0, targets=targets)
    for name, value in model.named_parameters():
        if "lora_B" in name:
            value.copy_(0.1 * torch.randn_like(value))
    return model.eval()


def test_adapters_alone_give_the_law_of_the_adapted_model(run, monkeypatch):
    models = {version: adapted(version) for version in (1, 2)}
    weights = {version: LanguagePolicy(model).weights() for version, model in models.items()}

    def whole(_):
        raise AssertionError("the whole weights were asked for")

    async def main():
        engine = start("nano", seed=0, lora=4, **SETTINGS)
        told = {}
        try:
            first = await engine.submit(Request(PREFIX, Sampling(max_tokens=24, ignore_eos=True, seed=5)))
            monkeypatch.setattr(publish, "merged_weights", whole)
            for version in models:
                await engine.update_weights(weights[version], version)
                sample = await engine.submit(Request(PREFIX, Sampling(max_tokens=24, ignore_eos=True, seed=5)))
                tokens = np.concatenate([PREFIX, sample.actions])
                told[version] = sample, await engine.score(tokens, len(PREFIX))
            with pytest.raises(EngineError, match="take adapters alone"):
                await engine.update_weights(LOADED.model, 3)
            assert engine.version == 2
        finally:
            await engine.close()
        return first, told

    first, told = run(main())
    assert np.abs(first.logp - truth(LOADED.model, PREFIX, first.actions)).max() < 1e-3
    for version, (sample, scored) in told.items():
        right = truth(models[version], PREFIX, sample.actions)
        assert (sample.version == version).all()
        assert np.abs(sample.logp - right).max() < 1e-3
        assert np.abs(scored.logp - right).max() < 1e-3
        assert np.abs(truth(LOADED.model, PREFIX, sample.actions) - right).max() > 0.05


def test_ranks_that_vllm_has_no_room_for_are_refused():
    with pytest.raises(EngineError, match="rank 1 to 512, not 1000"):
        start("nano", lora=1000, **SETTINGS)
    with pytest.raises(EngineError, match="choose one of the two"):
        start("nano", lora=4, weights="ipc", **SETTINGS)
