"""The contract's checks catch engines that break it."""

import dataclasses
import functools

import numpy as np
import pytest

from rolltree.engine.protocol import Request
from rolltree.testing import engine as contract
from tests.engine import tiny


class Bent:
    """A local engine whose requests or samples are bent."""

    def __init__(self, request=lambda r: r, sample=lambda s: s):
        self.inner, self.bend_request, self.bend_sample = tiny.engine(), request, sample

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def submit(self, request):
        run = self.inner.submit(self.bend_request(request))
        return _BentRun(run, self.bend_sample)


class _BentRun:
    def __init__(self, run, bend):
        self.run, self.bend = run, bend

    def __await__(self):
        return self._wait().__await__()

    async def _wait(self):
        return self.bend(await self.run)

    def __aiter__(self):
        return self.run.__aiter__()

    def stop(self, finish="abort"):
        self.run.stop(finish)


def with_sampling(**knobs):
    return lambda r: Request(r.prefix, dataclasses.replace(r.sampling, **knobs), r.want)


def with_fields(**fields):
    return lambda s: dataclasses.replace(s, **{k: f(s) for k, f in fields.items()})


@pytest.mark.parametrize(
    ("check", "bend"),
    [
        (contract.sampling_follows_the_distribution, {"request": with_sampling(temperature=0.9)}),
        (contract.sampling_follows_the_distribution, {"request": with_sampling(top_p=1.0)}),
        (contract.sampling_follows_the_distribution, {"sample": with_fields(sampling_logprob=lambda s: s.logp)}),
        (contract.logp_is_what_score_says, {"sample": with_fields(logp=lambda s: s.logp * 1.01)}),
        (contract.greedy_takes_the_best, {"sample": with_fields(sampling_logprob=lambda s: np.zeros_like(s.logp))}),
        (contract.greedy_takes_the_best, {"request": with_sampling(temperature=3.0)}),
        (contract.seeds_decide, {"request": with_sampling(seed=None)}),
        (contract.seeds_decide, {"request": with_sampling(seed=1)}),
        (contract.continuations_stay_in_the_stream, {"request": with_sampling(offset=0)}),
        (contract.stop_ids_end_and_belong, {"request": with_sampling(stop_ids=())}),
        (contract.stop_ids_end_and_belong, {"request": with_sampling(ignore_eos=True)}),
        (contract.stop_strings_end_and_belong, {"request": with_sampling(stop=())}),
        (contract.stop_strings_end_and_belong, {"sample": with_fields(stopped_by=lambda s: "")}),
        (contract.stopping_keeps_what_exists, {"sample": with_fields(actions=lambda s: s.actions[:-1])}),
        (contract.extras_describe_the_policy, {"sample": with_fields(entropy=lambda s: s.logp)}),
        (contract.what_cannot_fit_is_refused, {"request": lambda r: Request(r.prefix[:9], r.sampling)}),
        (contract.versions_are_reported, {"sample": with_fields(version=lambda s: s.version + 1)}),
    ],
    ids=lambda p: getattr(p, "__name__", "bend"),
)
def test_a_broken_promise_is_named(check, bend):
    with pytest.raises(AssertionError):
        contract.run_check(check, lambda: Bent(**bend), prefix=[3, 1, 4])


def test_misfit_of_the_right_distribution_is_small_and_of_a_wrong_one_large():
    rng = np.random.default_rng(0)
    distribution = np.log(rng.dirichlet(np.ones(30)))
    counts = np.bincount(rng.choice(30, 5000, p=np.exp(distribution)), minlength=30)
    assert abs(contract.misfit(counts, distribution)) < 4
    assert contract.misfit(counts, contract.truncated(distribution, 0.8, 0, 1.0)) > 5
    assert contract.misfit(counts, contract.truncated(distribution, 1.0, 5, 1.0)) == np.inf


def test_check_engine_runs_each_check_on_a_fresh_engine(monkeypatch):
    seen = []

    async def check(ask):
        seen.append(ask.engine)

    check_it = functools.partial(contract.run_check, check)
    monkeypatch.setattr(contract, "ENGINE_CHECKS", {"one": check_it, "two": check_it})
    contract.check_engine(tiny.engine)
    assert len({id(engine) for engine in seen}) == 2
