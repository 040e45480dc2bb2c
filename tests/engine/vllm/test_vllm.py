"""vLLM behind the engine contract, on the shipped policy: real weights, real updates, real caches."""

import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from rolltree.engine.protocol import EngineError, Request, Sampling
from rolltree.generate.runner import grow
from rolltree.policy.load import load_model
from rolltree.recipe.registry import load_recipe
from rolltree.task.registry import load_task
from rolltree.testing.engine import CHECKS, EngineProbe

pytestmark = pytest.mark.vllm
LOADED = load_model("nano")


def ids(text):
    return np.array(LOADED.codec.encode(text), np.int32)


PREFIX = ids("2+3*(4-1)=")


@torch.no_grad()
def truth(model, prefix, actions):
    """Log-probs by transformers."""
    tokens = torch.tensor(np.concatenate([prefix, actions]), dtype=torch.long)[None]
    logp = torch.log_softmax(model(tokens).logits[0].double(), -1)
    at = torch.arange(len(prefix) - 1, tokens.shape[1] - 1)
    return logp[at, tokens[0, len(prefix) :]].numpy()


def moved(by, seed):
    model = copy.deepcopy(LOADED.model)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(by * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract(check, engine, run):
    run(check(EngineProbe(engine, PREFIX)))


def test_log_probs_are_those_of_transformers(engine, run):
    async def main():
        sampling = Sampling(max_tokens=40, ignore_eos=True, seed=3, temperature=0.8, top_p=0.9)
        return await engine.submit(Request(PREFIX, sampling, frozenset({"entropy", "top:5"})))

    got = run(main())
    assert np.abs(got.logp - truth(LOADED.model, PREFIX, got.actions)).max() < 1e-3
    assert got.top.ids.shape == (40, 5)
    assert (got.sampling_logprob >= got.logp - 1e-4).mean() > 0.5


def test_prefixes_are_computed_once_and_never_read_across_an_update(engine, run):
    long = np.resize(PREFIX, 200)

    async def main():
        once = await engine.submit(Request(long, Sampling(max_tokens=1, seed=0)))
        again = await engine.submit(Request(long, Sampling(max_tokens=1, seed=1)))
        await engine.update_weights(LOADED.model.state_dict(), engine.version + 1, caches="keep")
        kept = await engine.submit(Request(long, Sampling(max_tokens=1, seed=2)))
        await engine.update_weights(LOADED.model.state_dict(), engine.version + 1)
        anew = await engine.submit(Request(long, Sampling(max_tokens=1, seed=3)))
        return [s.prefilled for s in (once, again, kept, anew)]

    once, again, kept, anew = run(main())
    assert (once, anew) == (200, 200)
    assert again == kept <= 40


def test_an_update_in_flight_splits_runs_into_segments_of_one_version(engine, run):
    new = moved(0.02, seed=1)

    async def main():
        before = engine.version
        runs = [engine.submit(Request(PREFIX, Sampling(max_tokens=120, ignore_eos=True, seed=s))) for s in range(6)]
        async for _ in runs[0]:
            if len(runs[0].written) >= 10:
                break
        await engine.pause()
        had = [len(r.written) for r in runs]
        late = engine.submit(Request(PREFIX, Sampling(max_tokens=8, ignore_eos=True, seed=9)))
        await engine.update_weights(new.state_dict(), before + 1)
        assert [len(r.written) for r in runs] == had
        await engine.resume()
        got = [await r for r in runs]
        last = await late
        await engine.update_weights(LOADED.model, before + 2)
        return before, had, got, last

    before, had, got, last = run(main())
    assert had[0] >= 10
    assert (last.version == before + 1).all()
    for cut, sample in zip(had, got, strict=True):
        assert len(sample.actions) == 120
        assert sample.version.tolist() == [before] * cut + [before + 1] * (120 - cut)
        assert np.abs(sample.logp[:cut] - truth(LOADED.model, PREFIX, sample.actions)[:cut]).max(initial=0) < 1e-3
        assert np.abs(sample.logp[cut:] - truth(new, PREFIX, sample.actions)[cut:]).max() < 1e-3


def test_a_stop_keeps_what_vllm_made_and_had_not_handed_over(engine, run):
    async def main():
        knobs = Sampling(max_tokens=400, ignore_eos=True)
        runs = [engine.submit(Request(PREFIX, replace(knobs, seed=s))) for s in range(4)]
        watched = engine.submit(Request(PREFIX, replace(knobs, seed=9)))
        async for _ in watched:
            if len(watched.written) >= 24:
                break
        seen = [len(r.written) for r in runs]
        for r in (*runs, watched):
            r.stop("budget")
        return seen, [await r for r in runs], await watched, len(watched.written)

    seen, got, watched, written = run(main())
    assert len(watched.actions) == written
    assert max(seen) < 16  # what nobody watches comes in lumps
    for sample in got:
        assert sample.finish == "budget"
        assert 16 <= len(sample.actions) < 400
        assert np.abs(sample.logp - truth(LOADED.model, PREFIX, sample.actions)).max() < 1e-3


def test_versions_only_grow_and_what_is_no_weights_is_refused(engine, run):
    with pytest.raises(EngineError, match="versions only grow"):
        run(engine.update_weights(LOADED.model, engine.version))
    with pytest.raises(EngineError, match="state dict, a model or a folder"):
        run(engine.update_weights(3, engine.version + 1))
    assert len(run(_sample(engine)).actions) == 4


async def _sample(engine, **knobs):
    return await engine.submit(Request(PREFIX, Sampling(**{"max_tokens": 4, "ignore_eos": True} | knobs)))


def test_a_tree_recipe_grows_over_it(engine, run):
    task = load_task("countdown")
    items = list(itertools.islice(task.items("train", 0), 2))
    parts = load_recipe("treepo").build()
    forest = run(grow(parts.strategy, engine, task, items, seed=0))
    leaves = [leaf for _, leaf in forest.leaves()]
    assert len(leaves) >= 8
    assert all(leaf.status == "done" and "reward" in leaf.scores for leaf in leaves)
    for tree in forest:
        for node in tree:
            if node.role == "policy":
                before = np.concatenate([n.actions for n in tree.path(node)[:-1]])
                assert np.abs(node.logp - truth(LOADED.model, before, node.actions)).max(initial=0) < 1e-3
