"""Alternatives and margins of the policy, recorded inside vLLM whatever is sampled; recipes that fork on them.

vLLM is started here as of a large vocabulary: it reports the distribution sampled from and a few of its alternatives.
"""

import sys
from typing import Any

import numpy as np
import pytest
import torch

import rolltree
from rolltree.engine.protocol import EngineError, Request, Sampling
from rolltree.engine.vllm import start
from rolltree.generate.runner import grow
from rolltree.recipe.registry import load_recipe
from tests.engine.vllm.conftest import SETTINGS
from tests.engine.vllm.test_vllm import LOADED, PREFIX, truth

pytestmark = pytest.mark.vllm
SHARP = {"temperature": 0.7, "top_p": 0.9, "ignore_eos": True}


@torch.no_grad()
def best(prefix, actions, count):
    """The policy's likeliest tokens at each step, by transformers."""
    tokens = torch.tensor(np.concatenate([prefix, actions]), dtype=torch.long)[None]
    return torch.log_softmax(LOADED.model(tokens).logits[0].double(), -1)[len(prefix) - 1 : -1].topk(count, -1)


@pytest.mark.papers("arpo", "latr")
def test_forks_read_the_policy_whatever_is_sampled(run, monkeypatch):
    monkeypatch.setattr(sys.modules["rolltree.engine.vllm.start"], "SMALL", 0)

    async def main():
        engine = start("nano", seed=0, reports="sampling", alternatives=16, **SETTINGS)
        try:
            want = frozenset({"top:2", "entropy"})
            asked = [Request(PREFIX, Sampling(max_tokens=5 + 7 * i, seed=i, **SHARP), want) for i in range(4)]
            asked.append(Request(PREFIX, Sampling(max_tokens=9, seed=9, **SHARP), frozenset({"top:5"})))
            samples = [await one for one in [engine.submit(request) for request in asked]]
            with pytest.raises(EngineError, match="at most 16 alternatives"):
                engine.submit(Request(PREFIX, Sampling(max_tokens=2, **SHARP), frozenset({"top:17"})))
            forests: dict[str, Any] = {}
            for name, task, most, knobs in (
                ("latr", "countdown", 40, {"share": 1.0, "leaves": 4}),
                ("arpo", "lookup", 60, {"leaves": 4, "first": 2, "base": 0.9}),
            ):
                asks = rolltree.load_task(task)
                forests[name] = await grow(
                    load_recipe(name, **knobs).build().strategy, engine, asks, [next(asks.items("train"))], seed=1,
                    max_tokens=most, sampling=Sampling(temperature=0.7, top_p=0.9),
                )  # fmt: skip
            return samples, forests
        finally:
            await engine.close()

    samples, forests = run(main())
    for sample, count in zip(samples, (2, 2, 2, 2, 5), strict=True):
        assert np.abs(sample.logp - truth(LOADED.model, PREFIX, sample.actions)).max() < 1e-3
        logp, ids = best(PREFIX, sample.actions, count)
        assert np.abs(sample.top.logp - logp.numpy()).max() < 1e-3
        apart = (logp[:, :-1] - logp[:, 1:] > 1e-3).all(-1).numpy()
        assert apart.any()
        assert (sample.top.ids == ids.numpy())[apart].all()
    for name, birth in (("latr", "forced"), ("arpo", "boundary")):
        births = [node.birth for _, node in forests[name].nodes()]
        assert birth in births, (name, births)
        assert len(list(next(iter(forests[name])).leaves())) == 4
