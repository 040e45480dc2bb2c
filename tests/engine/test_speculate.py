"""Guessing ahead changes how many steps a sample takes, and nothing else."""

import asyncio
import functools

import numpy as np
import pytest
import torch

from rolltree.contract.engine import ENGINE_CHECKS
from rolltree.engine.local import speculate
from rolltree.engine.local.drafts import NgramTable
from rolltree.engine.local.speculate import Speculation
from rolltree.engine.protocol import EngineError, Request, Sampling
from tests.engine import tiny

engine64 = functools.partial(tiny.engine, dtype=torch.float64)
PREFIXES = [
    np.array(ids, np.int32) for ids in ([3, 1, 4], [3, 1, 4], [1, 5, 9, 2, 6, 5, 3, 5, 9, 2, 6], [7], [3, 1, 4, 1])
]
KINDS = [
    {},
    {"temperature": 0.0},
    {"temperature": 0.3, "top_p": 0.8},
    {"temperature": 0.6, "top_k": 3},
    {"temperature": 0.5, "stop": ("yz", "ab"), "ignore_eos": True},
    {"temperature": 0.4, "stop_ids": (7,)},
]


class Known:
    """A drafter that has the texts beforehand, right or with every token wrong."""

    def __init__(self, texts, shift=0):
        self.texts, self.shift, self.names = texts, shift, {}

    def begin(self, key, prefix):
        self.names[key] = list(prefix)

    def written(self, key, text, new):
        self.names[key] += list(text)[len(text) - new :]

    def ended(self, key):
        del self.names[key]

    def draft(self, key, tail, most, least):
        had = self.names[key]
        text = next(text for text in self.texts if text[: len(had)] == had)
        return [(token + self.shift) % tiny.VOCAB for token in text[len(had) : len(had) + most]]


def sampled(how, rounds=2, want=frozenset({"entropy", "top:4"}), make=engine64, streamed=False, **extra):
    """All kinds of requests together, several times, and the engine's counts."""

    async def one(run):
        parts = [part async for part in run] if streamed else []
        return await run, parts

    async def main():
        engine = make(speculate=how)
        out = []
        for again in range(rounds):
            runs = [
                engine.submit(
                    Request(p, Sampling(**{"max_tokens": 40, "seed": 100 * again + 10 * i + j} | kind | extra), want)
                )
                for i, p in enumerate(PREFIXES)
                for j, kind in enumerate(KINDS)
            ]
            out += await asyncio.gather(*map(one, runs))
        await engine.close()
        return out, engine.speculation

    return asyncio.run(main())


@pytest.mark.parametrize("drafter", speculate.DRAFTERS)
@pytest.mark.parametrize("streamed", [False, True])
def test_the_samples_are_those_of_one_token_at_a_time(drafter, streamed):
    plain, none = sampled(None, streamed=streamed)
    guessed, counts = sampled(Speculation(drafter, most=5, least=0.05, rows=64), streamed=streamed)
    assert none is None
    assert counts.accepted > 100
    for (a, _), (b, parts) in zip(plain, guessed, strict=True):
        assert a.actions.tolist() == b.actions.tolist()
        assert (a.finish, a.stopped_by) == (b.finish, b.stopped_by)
        np.testing.assert_array_equal(a.top.ids, b.top.ids)
        for name in ("logp", "sampling_logprob", "entropy"):
            np.testing.assert_allclose(getattr(a, name), getattr(b, name), atol=1e-6)
        if streamed:
            assert np.concatenate([part.actions for part in parts]).tolist() == b.actions.tolist()


def test_hooks_see_every_token_once_and_hidden_states_are_the_same():
    seen = []

    def hook(generated, logits):
        seen.append(len(generated))
        logits = logits.clone()
        logits[5] -= 2.0 * (len(generated) % 3)
        return logits

    want = frozenset({"hidden"})
    for extra, wants in (({"hook": hook}, frozenset()), ({}, want)):
        seen.clear()
        plain, _ = sampled(None, 1, wants, **extra)
        calls = sorted(seen)
        seen.clear()
        guessed, _ = sampled(Speculation("suffix", least=0.05, rows=64), 1, wants, **extra)
        assert sorted(seen) == calls
        for (a, _), (b, _) in zip(plain, guessed, strict=True):
            assert a.actions.tolist() == b.actions.tolist()
            if wants:
                np.testing.assert_allclose(a.hidden, b.hidden, atol=1e-6)


@pytest.mark.parametrize("most", [1, 3, 8])
def test_right_guesses_save_their_steps_and_wrong_ones_cost_none(monkeypatch, most):
    prefix = PREFIXES[2]

    def decoded(how, n=36):
        async def main():
            engine = engine64(speculate=how)
            got = await engine.submit(Request(prefix, Sampling(max_tokens=n, ignore_eos=True, seed=5)))
            await engine.close()
            return got, engine.speculation

        return asyncio.run(main())

    plain, _ = decoded(None)
    text = [*prefix.tolist(), *plain.actions.tolist()]
    for shift, per_step in ((0, most + 1), (1, 1)):
        monkeypatch.setitem(speculate.DRAFTERS, "known", lambda shift=shift: Known([text], shift))
        got, counts = decoded(Speculation("known", most=most))
        assert got.actions.tolist() == plain.actions.tolist()
        # The first token comes with the prompt; every step then brings one token and the guesses that were right.
        assert counts.forwards == -(-35 // per_step)
        assert counts.accepted == 35 - counts.forwards
        assert counts.per_row == pytest.approx(35 / counts.forwards)


@pytest.mark.parametrize("check", [c for c in ENGINE_CHECKS if c != "sampling_follows_the_distribution"])
def test_an_engine_that_guesses_keeps_the_contract(check):
    ENGINE_CHECKS[check](lambda: tiny.engine(speculate=Speculation("suffix", most=4, least=0.01)), prefix=[3, 1, 4])


def test_it_draws_from_the_same_distribution_whatever_is_guessed():
    """The first two tokens of many seeds are, pair by pair, those without guesses; here from random guesses."""

    class Random:
        def __init__(self):
            self.rng = np.random.default_rng(0)

        def begin(self, key, prefix): ...

        def written(self, key, text, new): ...

        def ended(self, key): ...

        def draft(self, key, tail, most, least):
            return self.rng.integers(0, tiny.VOCAB, most).tolist()

    speculate.DRAFTERS["random"] = Random
    try:
        plain, _ = sampled(None, 4)
        guessed, counts = sampled(Speculation("random", most=6, rows=64), 4)
    finally:
        del speculate.DRAFTERS["random"]
    assert counts.accepted > 0
    assert [a.actions.tolist() for a, _ in plain] == [b.actions.tolist() for b, _ in guessed]


def test_it_rests_where_guesses_are_wrong(monkeypatch):
    class Wrong(Known):
        def draft(self, key, tail, most, least):
            return [22] * most

    monkeypatch.setitem(speculate.DRAFTERS, "wrong", lambda: Wrong([]))
    _, counts = sampled(Speculation("wrong", most=8, rows=64), 2)
    assert counts.drafted > 0
    assert counts.drafted < 0.5 * 8 * counts.rows


def test_with_many_requests_inside_it_does_not_guess():
    _, few = sampled(Speculation("suffix", least=0.05, rows=4), 1)
    _, many = sampled(Speculation("suffix", least=0.05, rows=64), 1)
    assert few.drafted < many.drafted


def test_a_table_guesses_what_came_next_and_forgets_what_is_old():
    table = NgramTable(kept=200)
    table.add([1, 2, 3, 4, 5] * 3, 0)
    assert table.draft([1, 2, 3], 4, 0.1) == [4, 5, 1, 2]
    assert table.draft([1, 2, 3], 4, 0.9) == []
    assert table.draft([9, 9, 9], 4, 0.0) == []
    rng = np.random.default_rng(0)
    for _ in range(20):
        table.add(rng.integers(10, 1000, 60).tolist(), 0)
        assert len(table) < 800
    assert table.draft([1, 2, 3], 4, 0.1) == []


@pytest.mark.parametrize("text", ["suffx", "ngram:", "ngram:x", "suffix:0", "suffix:-2", "off:3"])
def test_an_unknown_way_to_guess_is_one_sentence(text):
    with pytest.raises(EngineError) as raised:
        Speculation.of(text)
    assert "\n" not in str(raised.value)


def test_the_word_on_the_command_line():
    assert Speculation.of("off") is None
    assert Speculation.of("ngram") == Speculation("ngram")
    assert Speculation.of("suffix:5") == Speculation("suffix", most=5)
