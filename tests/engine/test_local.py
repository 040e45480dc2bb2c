"""The local engine against transformers, and under sharing, memory limits, pauses and new weights."""

import asyncio
import copy
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from rolltree.engine.local import LocalEngine
from rolltree.engine.local import core as core_module
from rolltree.engine.protocol import EngineError, Request, Sampling
from tests.engine import tiny
from tests.engine.test_semantics import PREFIX, ask, run

MODELS = {"native": tiny.llama, "foreign": tiny.gpt2}


def prompts(count, seed=0, low=3, high=40):
    rng = np.random.default_rng(seed)
    return [rng.integers(1, tiny.VOCAB, rng.integers(low, high)) for _ in range(count)]


@pytest.mark.parametrize("kind", MODELS)
def test_greedy_equals_transformers_generate_on_ragged_prompts(kind):
    model = MODELS[kind]()

    async def scenario(engine):
        return await asyncio.gather(*(_get(engine, p, max_tokens=20, temperature=0.0) for p in prompts(12)))

    samples = run(scenario, model=model)
    for prompt, sample in zip(prompts(12), samples, strict=True):
        with torch.no_grad():
            ids = torch.from_numpy(prompt)[None]
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False, pad_token_id=0
            )
        assert sample.actions.tolist() == out[0, len(prompt) :].tolist()


@pytest.mark.parametrize("kind", MODELS)
def test_logp_equals_the_models_own_forward(kind):
    model = MODELS[kind]()

    async def scenario(engine):
        return await asyncio.gather(*(_get(engine, p, max_tokens=15, temperature=1.3, seed=1) for p in prompts(8)))

    for prompt, sample in zip(prompts(8), run(scenario, model=model), strict=True):
        ids = torch.from_numpy(np.concatenate([prompt, sample.actions]).astype(np.int64))
        with torch.no_grad():
            table = torch.log_softmax(model(ids[None]).logits[0], -1)
        truth = table[torch.arange(len(prompt) - 1, len(ids) - 1), ids[len(prompt) :]].numpy()
        np.testing.assert_allclose(sample.logp, truth, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", MODELS)
def test_in_float64_a_seeded_sample_is_the_same_in_any_company_and_memory(kind):
    """Batch size, neighbours, prefix caches and admission order change nothing, over many requests."""

    async def scenario(engine):
        runs = [_get(engine, p, max_tokens=16, seed=i) for i, p in enumerate(prompts(24, high=60))]
        return [s.actions.tolist() for s in await asyncio.gather(*runs)]

    wide = run(scenario, model=MODELS[kind](), dtype=torch.float64)
    narrow = run(scenario, model=MODELS[kind](), dtype=torch.float64, max_batch=5, max_tokens_in_memory=300)
    alone = run(scenario, model=MODELS[kind](), dtype=torch.float64, max_batch=1, share_prefixes=False)
    assert wide == narrow == alone


def test_a_group_pays_its_prefix_once():
    async def scenario(engine):
        group = await asyncio.gather(*(_get(engine, PREFIX, max_tokens=3) for _ in range(8)))
        assert sorted(s.prefilled for s in group) == [0] * 7 + [len(PREFIX)]

    run(scenario)


def test_continuing_and_forking_what_the_engine_wrote_costs_one_token():
    async def scenario(engine):
        prompt = prompts(1, low=30)[0]
        first = await ask(engine, prompt, max_tokens=40, ignore_eos=True)
        whole = np.concatenate([prompt, first.actions])
        assert (await ask(engine, whole, max_tokens=4)).prefilled == 1
        forks = await asyncio.gather(*(_get(engine, whole[: len(prompt) + k], max_tokens=4) for k in (3, 17, 17, 29)))
        assert sorted(s.prefilled for s in forks) == [0, 1, 1, 1]

    run(scenario)


def test_shared_prefixes_change_no_number():
    async def scenario(engine):
        prompt = prompts(1, low=30)[0]
        await ask(engine, prompt, max_tokens=40, ignore_eos=True, seed=0)
        out = [await ask(engine, prompt[:k], max_tokens=20, seed=k) for k in (5, 16, 17, 30)]
        return [(s.actions.tolist(), s.logp) for s in out], [s.prefilled for s in out]

    shared, paid = run(scenario)
    apart, full = run(scenario, share_prefixes=False)
    assert paid == [1, 1, 1, 1]
    assert full == [5, 16, 17, 30]
    for (a, x), (b, y) in zip(shared, apart, strict=True):
        assert a == b
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_memory_stays_within_its_budget_and_everyone_is_served():
    engine = tiny.engine(max_batch=16, max_tokens_in_memory=400)
    core, sizes = engine._worker.core, []
    step = core.step

    def watched():
        news = step()
        sizes.append(core._slab.rows * core._slab.capacity)
        return news

    core.step = watched

    async def scenario():
        jobs = [_get(engine, p, max_tokens=8 + i, ignore_eos=True) for i, p in enumerate(prompts(24))]
        samples = await asyncio.gather(*jobs)
        assert [len(s.actions) for s in samples] == [8 + i for i in range(24)]
        await engine.close()

    asyncio.run(scenario())
    assert 0 < max(sizes) <= 300


def test_a_request_needing_all_the_memory_is_served_alone():
    async def scenario(engine):
        short = [ask(engine, max_tokens=5, ignore_eos=True) for _ in range(5)]
        long = ask(engine, max_tokens=85, ignore_eos=True)
        assert len((await long).actions) == 85
        assert all([len((await s).actions) == 5 for s in short])

    run(scenario, max_tokens_in_memory=120)


def test_the_event_loop_runs_while_the_engine_computes():
    async def scenario(engine):
        handle, turns = ask(engine, max_tokens=100, ignore_eos=True), 0
        waiting = asyncio.ensure_future(_wait(handle))
        while not waiting.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns > 100

    run(scenario)


def weights(factor):
    model = copy.deepcopy(tiny.llama())
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1 and "embed" not in name:
                p.mul_(factor)
    return model


@pytest.mark.parametrize("caches", ["keep", "recompute"])
def test_an_update_in_the_middle_marks_versions_and_treats_caches_as_told(caches):
    async def scenario(engine):
        handle = ask(engine, max_tokens=60, ignore_eos=True, seed=0)
        async for _ in handle:
            await engine.pause()
            break
        await engine.update_weights(weights(1.5).state_dict(), 7, caches=caches)
        await engine.resume()
        got = await handle
        changed = int((got.version == 0).sum())
        assert 0 < changed < 60
        assert got.version.tolist() == [0] * changed + [7] * (60 - changed)
        scored = await engine.score(np.concatenate([PREFIX, got.actions]), len(PREFIX))
        exact = np.allclose(scored.logp[changed:], got.logp[changed:], rtol=1e-3, atol=1e-3)
        assert exact == (caches == "recompute")
        # Whoever continues the run never reads caches of mixed versions.
        more = await ask(engine, np.concatenate([PREFIX, got.actions]), max_tokens=2)
        assert (more.prefilled == 1) == (caches == "recompute")

    run(scenario)


def test_prefixes_of_old_weights_are_forgotten():
    async def scenario(engine):
        await ask(engine, max_tokens=3)
        await engine.update_weights(weights(1.5), 1, caches="keep")
        again = await ask(engine, max_tokens=3)
        assert again.prefilled == len(PREFIX)
        assert (again.version == 1).all()

    run(scenario)


def test_a_wrong_update_changes_nothing():
    async def scenario(engine):
        before = await engine.score(PREFIX, 1)
        state = dict(weights(2.0).state_dict())
        for broken, word in (
            ({k: v for k, v in state.items() if "norm" not in k}, "lack 'model.norm.weight'"),
            (state | {"model.norm.weight": torch.ones(3)}, "shape"),
            (state | {"model.norm.weigth": torch.ones(3)}, "did you mean 'model.norm.weight'"),
        ):
            with pytest.raises(EngineError, match=word):
                await engine.update_weights(broken, 1)
        with pytest.raises(EngineError, match="Version 0 is not above"):
            await engine.update_weights(state, 0)
        after = await engine.score(PREFIX, 1)
        assert np.array_equal(before.logp, after.logp)
        assert after.version == 0

    run(scenario)


def test_weights_that_are_not_finite_fail_the_runs_with_the_version():
    async def scenario(engine):
        state = {k: torch.full_like(v, torch.nan) for k, v in tiny.llama().state_dict().items()}
        await engine.update_weights(state, 3)
        with pytest.raises(EngineError, match="not finite under weight version 3"):
            await ask(engine)
        await engine.update_weights(tiny.llama(), 4)
        assert len((await ask(engine, max_tokens=2, ignore_eos=True)).actions) == 2

    run(scenario)


def test_a_row_that_was_not_finite_spoils_no_later_one():
    async def scenario(engine):
        state = {k: torch.full_like(v, torch.nan) for k, v in tiny.llama().state_dict().items()}
        await engine.update_weights(state, 1)
        with pytest.raises(EngineError, match="not finite"):
            await ask(engine, prompts(1, low=30)[0])
        await engine.update_weights(tiny.llama(), 2)
        return (await ask(engine, PREFIX[:2], max_tokens=4, seed=0, ignore_eos=True)).logp

    async def alone(engine):
        return (await ask(engine, PREFIX[:2], max_tokens=4, seed=0, ignore_eos=True)).logp

    np.testing.assert_allclose(run(scenario), run(alone), rtol=1e-5)


def test_the_slab_is_as_wide_as_who_is_inside():
    """Reading much more than that, or gaps between rows, is what attention loses its time with."""
    engine = tiny.engine(max_batch=4)
    core, widths = engine._worker.core, []
    step = core.step

    def watched():
        news = step()
        if len(core.batch):
            widths.append((int(core.batch.length[: len(core.batch)].max()), core._slab.capacity))
        return news

    core.step = watched

    async def scenario():
        for size in (5, 100, 5):
            await ask(engine, prompts(1, low=size, high=size + 1)[0], max_tokens=20, ignore_eos=True)
        await engine.close()

    asyncio.run(scenario())
    assert max(length for length, _ in widths) > 100
    assert all(length <= width < length + 64 for length, width in widths)


def test_a_crash_in_a_step_fails_who_is_inside_and_the_engine_goes_on(monkeypatch):
    async def scenario(engine):
        with monkeypatch.context() as patch:
            patch.setattr(core_module, "choose", lambda *args: 1 / 0)
            with pytest.raises(EngineError, match="decoding step with ZeroDivisionError"):
                await ask(engine)
        assert len((await ask(engine, max_tokens=2, ignore_eos=True)).actions) == 2

    run(scenario)


def test_scores_of_many_lengths_equal_those_one_by_one():
    async def scenario(engine):
        texts = prompts(30, low=2, high=100)
        together = await asyncio.gather(*(engine.score(t, 1, frozenset({"entropy"})) for t in texts))
        for text, scored in zip(texts, together, strict=True):
            alone = await engine.score(text, 1, frozenset({"entropy"}))
            np.testing.assert_allclose(scored.logp, alone.logp, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(scored.entropy, alone.entropy, rtol=1e-4, atol=1e-5)

    run(scenario)


def test_a_process_that_forgets_to_close_its_engine_still_exits_cleanly():
    script = """
import asyncio
from tests.engine import tiny
from tests.engine.test_semantics import ask
async def main():
    engine = tiny.engine()
    ask(engine, max_tokens=100, ignore_eos=True)
    await ask(engine, max_tokens=2, ignore_eos=True)
    return engine
engine = asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_bare_model_needs_a_codec():
    with pytest.raises(EngineError, match="needs its codec"):
        LocalEngine(tiny.llama())


async def _get(engine, prefix, **knobs):
    return await engine.submit(Request(np.asarray(prefix), Sampling(**knobs)))


async def _wait(handle):
    return await handle


def test_a_score_asked_for_while_the_engine_closes_is_answered():
    async def main():
        engine = tiny.engine()
        ask(engine, max_tokens=100, ignore_eos=True)
        held = threading.Event()
        engine._worker.post(lambda: held.wait() and None)
        closing = asyncio.ensure_future(engine.close())
        await asyncio.sleep(0)
        scoring = asyncio.ensure_future(engine.score(PREFIX, 1))
        await asyncio.sleep(0)
        held.set()
        await closing
        with pytest.raises(EngineError, match="closed before it could score"):
            await asyncio.wait_for(scoring, 300)

    asyncio.run(main())


def test_requests_that_are_stopped_before_a_long_step_has_ended_are_never_begun():
    """The thread hears of the first stop before it has heard of the requests that were made and stopped since."""

    async def scenario(engine):
        inside = ask(engine, max_tokens=100, ignore_eos=True)
        async for _ in inside:
            break
        held = threading.Event()
        engine._worker.post(lambda: held.wait() and None)
        inside.stop()
        late = []
        for _ in range(3):
            late.append(ask(engine, max_tokens=100, ignore_eos=True))
            await asyncio.sleep(0)
            late[-1].stop()
        held.set()
        ended = await asyncio.gather(inside, *late)
        assert [sample.finish for sample in ended] == ["abort"] * 4
        assert [len(sample.actions) for sample in ended[1:]] == [0, 0, 0]
        assert not engine._worker._stopping

    run(scenario)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_log_probs_of_half_precision_models_are_not_rounded_to_it(dtype):
    async def main():
        engine = tiny.engine(tiny.llama(), dtype=dtype)
        decoder = engine._worker.core.decoder
        got = await ask(engine, max_tokens=12, temperature=0.8, seed=3, ignore_eos=True, want=["entropy", "top:3"])
        scored = await engine.score(np.append(PREFIX, got.actions), len(PREFIX), frozenset({"entropy"}))
        await engine.close()
        ids = torch.tensor(np.append(PREFIX, got.actions))[None]
        with torch.inference_mode():
            whole, prompt = (
                decoder.logits(decoder.extend(ids[:, :n], torch.zeros(1, dtype=torch.long), None, n))[0]
                for n in (ids.shape[1], len(PREFIX))
            )
        assert whole.dtype == dtype
        return got, scored, whole[len(PREFIX) - 1 : -1].double(), prompt[-1].double()

    got, scored, logits, first = asyncio.run(main())
    policy, at = logits.log_softmax(-1), torch.arange(len(got.actions))
    exact = policy[at, torch.tensor(got.actions).long()].numpy()
    np.testing.assert_allclose(scored.logp, exact, atol=1e-5)
    np.testing.assert_allclose(scored.entropy, torch.special.entr(policy.exp()).sum(-1).numpy(), atol=1e-5)
    # The engine read the prompt in one piece, so that the first token's numbers must be those of the same logits.
    policy, distribution, token = first.log_softmax(-1), (first / 0.8).log_softmax(-1), int(got.actions[0])
    assert got.logp[0] == pytest.approx(float(policy[token]), abs=1e-5)
    assert got.top.logp[0] == pytest.approx(policy.topk(3).values.numpy(), abs=1e-5)
    assert got.sampling_logprob[0] == pytest.approx(float(distribution[token]), abs=1e-5)
