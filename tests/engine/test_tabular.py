"""The exact engine: its distribution is the policy's, its log-probs are exact, and it keeps the engine contract."""

import asyncio
import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from rolltree.engine.protocol import Engine, EngineError, Request, Sampling
from rolltree.engine.tabular import Letters, TabularEngine, enumerate_paths

ABC = Letters("abc")


def policy(prefix):
    """Depends on the whole prefix."""
    w = np.array([1.0, 2.0 + sum(prefix) % 3, 1.0 + len(prefix) % 2])
    return w / w.sum()


def sample(n=1, engine=None, prefix=(0,), want=frozenset(), **how):
    engine = engine or TabularEngine(policy, ABC)

    async def go():
        how.setdefault("max_tokens", 3)
        runs = [
            engine.submit(Request(np.array(prefix, np.int32), Sampling(seed=i, **how), frozenset(want)))
            for i in range(n)
        ]
        return [await run for run in runs]

    return asyncio.run(go())


def test_it_is_an_engine_whose_paths_sum_to_one():
    assert isinstance(TabularEngine(policy, ABC), Engine)
    paths = dict(enumerate_paths(policy, 3, prefix=(0,)))
    assert len(paths) == 27
    assert math.isclose(sum(paths.values()), 1)


def test_eos_ends_enumerated_paths():
    paths = dict(enumerate_paths(lambda p: [0.5, 0.5], 3, eos=1))
    assert paths == {(1,): 0.5, (0, 1): 0.25, (0, 0, 1): 0.125, (0, 0, 0): 0.125}


def test_sampling_distribution_is_the_policys():
    paths = dict(enumerate_paths(policy, 3, prefix=(0,)))
    counts = Counter(tuple(s.actions.tolist()) for s in sample(6000))
    observed = [counts[p] for p in paths]
    assert chisquare(observed, [6000 * p for p in paths.values()]).pvalue > 1e-3


def test_log_probs_are_exact_under_both_distributions():
    (s,) = sample(temperature=2.0, top_k=2, want={"entropy", "top:2", "hidden"})
    for i, token in enumerate(s.actions):
        p = policy((0, *s.actions[:i].tolist()))
        kept = np.sort(np.sqrt(p))[-2:]
        assert s.logp[i] == pytest.approx(math.log(p[token]), abs=1e-6)
        assert s.sampling_logprob[i] == pytest.approx(math.log(np.sqrt(p[token]) / kept.sum()), abs=1e-6)
        assert s.entropy[i] == pytest.approx(-(p * np.log(p)).sum(), abs=1e-6)
        assert s.top.logp[i] == pytest.approx(np.sort(np.log(p))[::-1][:2], abs=1e-6)
    assert np.exp(s.hidden) == pytest.approx(policy((0, *s.actions.tolist())), abs=1e-6)
    assert np.allclose(asyncio.run(TabularEngine(policy, ABC).score(np.array([0, *s.actions]), 1)).logp, s.logp)


def test_top_p_keeps_the_smallest_nucleus():
    engine = TabularEngine(lambda p: [0.5, 0.3, 0.2], ABC)
    seen = {int(t) for s in sample(200, engine, top_p=0.6) for t in s.actions}
    assert seen == {0, 1}
    (s,) = sample(1, engine, top_p=0.6, max_tokens=1)
    assert math.exp(s.sampling_logprob[0]) in (pytest.approx(0.625), pytest.approx(0.375))


def test_greedy_has_no_sampling_probability():
    (s,) = sample(engine=TabularEngine(lambda p: [0.2, 0.5, 0.3], ABC), temperature=0.0)
    assert s.actions.tolist() == [1, 1, 1]
    assert np.isnan(s.sampling_logprob).all()
    assert np.isfinite(s.logp).all()


def test_hooks_change_what_is_sampled_from_but_not_the_policy():
    def forbid_repeats(generated, logits):
        logits[list(generated)] = -math.inf
        return logits

    (s,) = sample(hook=forbid_repeats)
    assert sorted(s.actions.tolist()) == [0, 1, 2]
    assert s.sampling_logprob[2] == pytest.approx(0, abs=1e-6)
    assert s.logp[2] < -0.1


@pytest.mark.parametrize(
    ("how", "finish", "text"),
    [
        ({"stop": ("cc",)}, "stop", "bcc"),
        ({"stop_ids": (1,)}, "stop", "b"),
        ({}, "length", "bcc"),
        ({"ignore_eos": True}, "length", "bcc"),
    ],
)
def test_ends(how, finish, text):
    table = {(0,): [0, 1, 0], (0, 1): [0, 0, 1], (0, 1, 2): [0, 0, 1]}
    (s,) = sample(engine=TabularEngine(table, ABC), **how)
    assert (s.finish, ABC.decode(s.actions)) == (finish, text)
    (s,) = sample(engine=TabularEngine(table, Letters("abc", eos_id=2)), **how)
    assert s.finish == ("stop" if "stop_ids" in how else "length" if "ignore_eos" in how else "eos")


def test_a_sample_depends_on_its_seed_alone():
    alone = [sample(1, prefix=(0,))[0].actions.tolist()]
    crowd = sample(50, TabularEngine(policy, ABC, shuffle=3))
    assert alone[0] == crowd[0].actions.tolist()


def test_increments_add_up_and_stop_keeps_what_exists():
    async def go():
        engine = TabularEngine(policy, ABC)
        whole = engine.submit(Request(np.array([0]), Sampling(max_tokens=9, seed=1)))
        parts = [p async for p in whole]
        assert np.concatenate([p.actions for p in parts]).tolist() == (await whole).actions.tolist()
        assert sum(p.prefilled for p in parts) == (await whole).prefilled == 1
        run = engine.submit(Request(np.array([0]), Sampling(max_tokens=9, seed=1)))
        async for _ in run:
            break
        run.stop("repetition")
        run.stop("abort")
        kept = await run
        assert kept.finish == "repetition"
        assert 0 < len(kept.actions) < 9
        unborn = engine.submit(Request(np.array([0]), Sampling(max_tokens=9)))
        unborn.stop()
        assert len((await unborn).actions) == 0

    asyncio.run(go())


def test_an_update_in_flight_shows_in_the_version_of_each_token():
    async def go():
        engine = TabularEngine(lambda p: [1.0, 0.0, 0.0], ABC)
        run = engine.submit(Request(np.array([0]), Sampling(max_tokens=6)))
        async for _ in run:
            break
        await engine.pause()
        before = len(run._drawn.actions)
        for _ in range(5):
            await asyncio.sleep(0)
        await engine.update_weights(lambda p: [0.0, 1.0, 0.0], 7)
        await engine.resume()
        s = await run
        assert s.actions.tolist() == [0] * before + [1] * (6 - before)
        assert s.version.tolist() == [0] * before + [7] * (6 - before)
        assert np.allclose(s.logp, 0)

    asyncio.run(go())


def test_broken_policies_and_endless_prompts_are_named():
    with pytest.raises(EngineError, match=r"no row for the prefix \(0,\)"):
        sample(engine=TabularEngine({}, ABC))
    with pytest.raises(EngineError, match=r"sums to 0.5"):
        sample(engine=TabularEngine(lambda p: [0.5, 0, 0], ABC))
    with pytest.raises(EngineError, match="context of 4"):
        sample(engine=TabularEngine(policy, ABC, max_context=4), prefix=(0,) * 4)
    with pytest.raises(ValueError, match="cannot encode 'z'"):
        ABC.encode("az")


def test_giving_up_waiting_and_closing_leave_the_sample_intact():
    async def go():
        engine = TabularEngine(policy, ABC)
        run = engine.submit(Request(np.array([0]), Sampling(max_tokens=1000)))
        waiter = asyncio.ensure_future(run)
        await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
        await engine.close()
        return await run

    assert asyncio.run(go()).finish == "abort"
