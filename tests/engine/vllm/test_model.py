"""A real language model in vLLM, where it has been fetched: a large vocabulary, and the distribution by vLLM's own
word."""

import numpy as np
import pytest

from rolltree.engine.protocol import Request, Sampling
from rolltree.engine.vllm import start
from rolltree.policy.load import load_model
from rolltree.policy.models import present
from tests.engine.vllm.conftest import SETTINGS
from tests.engine.vllm.test_entropy import spread
from tests.engine.vllm.test_vllm import truth

pytestmark = [pytest.mark.vllm, pytest.mark.model]


@pytest.mark.skipif(not present("smollm2-135m"), reason="not here: rolltree models get smollm2-135m")
def test_log_probs_of_a_real_model_under_its_own_distribution_survive_a_stop(run):
    loaded = load_model("smollm2-135m")
    prefix = np.array(loaded.codec.encode("The three primary colours are"), np.int32)

    async def main():
        engine = start(loaded, reports="sampling", max_context=512, seed=0, **SETTINGS)
        try:
            knobs = {"temperature": 0.9, "top_p": 0.95, "ignore_eos": True}
            whole = await engine.submit(
                Request(prefix, Sampling(max_tokens=24, seed=1, **knobs), frozenset({"entropy"}))
            )
            cut = engine.submit(Request(prefix, Sampling(max_tokens=300, seed=2, **knobs)))
            await engine.submit(Request(prefix, Sampling(max_tokens=12, seed=3, **knobs)))
            cut.stop("budget")
            return whole, await cut
        finally:
            await engine.close()

    whole, cut = run(main())
    assert (whole.finish, len(whole.actions)) == ("length", 24)
    assert np.abs(whole.entropy - spread(prefix, whole.actions, loaded.model)).max() < 1e-2
    assert cut.finish == "budget"
    assert 8 <= len(cut.actions) < 300
    for sample in (whole, cut):
        assert np.abs(sample.logp - truth(loaded.model, prefix, sample.actions)).max() < 1e-2
        assert (sample.sampling_logprob >= sample.logp - 1.0).all()
        assert not np.array_equal(sample.sampling_logprob, sample.logp)
