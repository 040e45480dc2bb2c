"""The entropy of the whole distribution, recorded inside vLLM: exact, whatever the distribution that is sampled."""

import sys

import numpy as np
import pytest
import torch

from rolltree.engine.protocol import Request, Sampling
from rolltree.engine.vllm import start
from tests.engine.vllm.conftest import SETTINGS
from tests.engine.vllm.test_vllm import LOADED, PREFIX

pytestmark = pytest.mark.vllm


@torch.no_grad()
def spread(prefix, actions, model=LOADED.model):
    """Entropies by transformers."""
    tokens = torch.tensor(np.concatenate([prefix, actions]), dtype=torch.long)[None]
    logp = torch.log_softmax(model(tokens).logits[0].double(), -1)
    return -(logp.exp() * logp).sum(-1)[len(prefix) - 1 : -1].numpy()


def test_a_large_vocabulary_is_no_reason_to_estimate(run, monkeypatch):
    """vLLM here reports 3 alternatives beside a token, as it would of 50,000, and they are the distribution's."""
    monkeypatch.setattr(sys.modules["rolltree.engine.vllm.start"], "SMALL", 0)

    async def main():
        engine = start("nano", seed=0, reports="sampling", alternatives=3, **SETTINGS)
        assert "entropy:full" in engine.capabilities.features
        knobs = {"max_tokens": 40, "ignore_eos": True}
        sharp = Sampling(**knobs, seed=1, temperature=0.7, top_p=0.9)
        try:
            # Some ask and some do not, they end at different times, and one is watched: rows move within the batch.
            asked = [Request(PREFIX, Sampling(max_tokens=5 + 7 * i, ignore_eos=True, seed=i), frozenset({"entropy"}))
                     for i in range(5)]  # fmt: skip
            asked += [Request(PREFIX, Sampling(**knobs, seed=9)), Request(PREFIX, sharp, frozenset({"entropy"})),
                      Request(PREFIX, Sampling(**knobs, temperature=0.0), frozenset({"entropy"}))]  # fmt: skip
            runs = [engine.submit(request) for request in asked]
            async for _ in runs[3]:
                pass
            samples = [await one for one in runs]
            scored = await engine.score(
                np.concatenate([PREFIX, samples[0].actions]), len(PREFIX), frozenset({"entropy"})
            )
            flying = engine.submit(
                Request(PREFIX, Sampling(max_tokens=400, ignore_eos=True, seed=3), frozenset({"entropy"}))
            )
            async for _ in flying:
                if len(flying.written) > 8:
                    break
            await engine.update_weights(LOADED.model, 1)
            flying.stop("budget")
            return samples, scored, await flying
        finally:
            await engine.close()

    samples, scored, cut = run(main())
    assert samples[5].entropy is None
    for sample in [*samples[:5], *samples[6:], cut]:
        assert np.abs(sample.entropy - spread(PREFIX, sample.actions)).max() < 1e-3
    assert np.abs(scored.entropy - samples[0].entropy).max() < 1e-3
