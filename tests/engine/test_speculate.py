"""Guessing ahead changes how many steps a sample takes, and nothing else."""

import asyncio
import copy
import functools

import numpy as np
import pytest
import torch

from rolltree.engine.local import speculate
from rolltree.engine.local.speculate import Speculation
from rolltree.engine.local.speculate.drafter import DraftAsk, Drafter
from rolltree.engine.local.speculate.shapes import GuessWidths, Spine
from rolltree.engine.local.speculate.tables import NgramTable
from rolltree.engine.local.speculate.tree import Guess
from rolltree.engine.protocol import EngineError, Request, Sampling
from rolltree.policy.foreign import ForeignDecoder
from rolltree.policy.llama import LlamaDecoder
from rolltree.policy.load import load_model
from rolltree.testing.engine import ENGINE_CHECKS
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


class Known(Drafter):
    """A drafter that has the texts beforehand, right or with every token wrong."""

    def __init__(self, texts, shift=0):
        self.texts, self.shift, self.names = texts, shift, {}

    def begin(self, key, prefix):
        self.names[key] = list(prefix)

    def written(self, key, text, new):
        self.names[key] += list(text)[len(text) - new :]

    def propose(self, asks):
        return [self._next(ask) for ask in asks]

    def _next(self, ask):
        had = self.names[ask.key]
        text = next(text for text in self.texts if text[: len(had)] == had)
        token = text[len(had) + len(ask.path)]
        return [Guess((token + self.shift) % tiny.VOCAB, 1.0)]


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
                    Request(p, Sampling(**{"max_tokens": 30, "seed": 100 * again + 10 * i + j} | kind | extra), want)
                )
                for i, p in enumerate(PREFIXES)
                for j, kind in enumerate(KINDS)
            ]
            out += await asyncio.gather(*map(one, runs))
            await engine.learn()
        await engine.close()
        return out, engine.speculation

    return asyncio.run(main())


def chain(n, least=0.0):
    return GuessWidths((1,) * n, least)


SHAPES = {"chain": chain(5), "tree": GuessWidths((3, 2, 1)), "delayed": GuessWidths((1, 1, 3, 1)), "spine": Spine(12)}


@functools.cache
def relative():
    """A policy much like `tiny.llama()`."""
    model = copy.deepcopy(tiny.llama())
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model


DRAFTERS = {"ngram": "ngram", "suffix": "suffix", "adjacent": "adjacent", "heads": "heads", "model": relative()}
PAIRS = [(d, s) for d in DRAFTERS for s in SHAPES if s != "spine" or d == "adjacent"]


@functools.cache
def unguessed(streamed):
    return sampled(None, streamed=streamed)


@pytest.mark.parametrize(
    ("drafter", "shape", "streamed"), [*((*pair, False) for pair in PAIRS), ("suffix", "tree", True)]
)
def test_the_samples_are_those_of_one_token_at_a_time(drafter, shape, streamed):
    plain, none = unguessed(streamed)
    how = Speculation(DRAFTERS[drafter], SHAPES[shape], least=0.0, rows=64)
    guessed, counts = sampled(how, streamed=streamed)
    assert none is None
    assert counts.accepted > 50
    for (a, _), (b, parts) in zip(plain, guessed, strict=True):
        assert a.actions.tolist() == b.actions.tolist()
        assert (a.finish, a.stopped_by) == (b.finish, b.stopped_by)
        np.testing.assert_array_equal(a.top.ids, b.top.ids)
        np.testing.assert_array_equal(a.version, b.version)
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
        guessed, _ = sampled(Speculation("suffix", GuessWidths((2, 2, 1)), least=0.05, rows=64), 1, wants, **extra)
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
        monkeypatch.setitem(speculate.DRAFTERS, "known", lambda _, shift=shift: Known([text], shift))
        got, counts = decoded(Speculation("known", chain(most)))
        assert got.actions.tolist() == plain.actions.tolist()
        # The first token comes with the prompt; every step then brings one token and the guesses that were right.
        assert counts.forwards == -(-35 // per_step)
        assert counts.accepted == 35 - counts.forwards
        assert counts.per_row == pytest.approx(35 / counts.forwards)


@pytest.mark.parametrize(("extra", "least"), [({"temperature": 0.0}, 1.0), ({}, 0.75)])
def test_the_policy_itself_as_drafter_is_right(extra, least):
    """Also under truncation: the number that decides a draw is known, so one guess a place is mostly enough."""
    ends = {"ignore_eos": True, "stop": (), "stop_ids": ()}
    plain, _ = sampled(None, 1, **ends, **extra)
    guessed, counts = sampled(Speculation(tiny.llama(), chain(4), rows=64), 1, **ends, **extra)
    assert [a.actions.tolist() for a, _ in plain] == [b.actions.tolist() for b, _ in guessed]
    assert counts.acceptance >= least
    assert counts.per_row > 3


def test_right_paths_far_from_the_first_branch_are_kept_in_order(monkeypatch):
    """The right path is the last branch at every fork, so that what is accepted stands apart from the text."""
    prefix = PREFIXES[2]

    class Last(Known):
        def _next(self, ask):
            right = super()._next(ask)[0].token
            return [Guess((right + i) % tiny.VOCAB, 0.1) for i in (2, 1, 0)][: ask.most]

    async def decoded(how):
        engine = engine64(speculate=how)
        got = await engine.submit(Request(prefix, Sampling(max_tokens=37, ignore_eos=True, seed=5)))
        await engine.close()
        return got, engine.speculation

    plain, _ = asyncio.run(decoded(None))
    text = [*prefix.tolist(), *plain.actions.tolist()]

    class Off(Last):
        """Off the text there is nothing to be known."""

        def _next(self, ask):
            had = self.names[ask.key]
            return super()._next(ask) if [*had, *ask.path] == text[: len(had) + len(ask.path)] else []

    monkeypatch.setitem(speculate.DRAFTERS, "last", lambda _: Off([text]))
    got, counts = asyncio.run(decoded(Speculation("last", GuessWidths((3, 3, 3)), least=0.0)))
    assert got.actions.tolist() == plain.actions.tolist()
    np.testing.assert_allclose(got.logp, plain.logp, atol=1e-6)
    # The first token comes with the prompt; then four a step: the drawn one and three guesses.
    assert counts.forwards == 9
    assert counts.accepted == 27


@pytest.mark.parametrize("check", [c for c in ENGINE_CHECKS if c != "sampling_follows_the_distribution"])
def test_an_engine_that_guesses_keeps_the_contract(check):
    how = Speculation("suffix", GuessWidths((2, 2, 1), 0.01), least=0.0)
    ENGINE_CHECKS[check](lambda: tiny.engine(speculate=how), prefix=[3, 1, 4])


def test_it_rests_where_guesses_are_wrong(monkeypatch):
    class Wrong(Drafter):
        def propose(self, asks):
            return [[Guess(22, 1.0)] for _ in asks]

    monkeypatch.setitem(speculate.DRAFTERS, "wrong", lambda _: Wrong())
    _, counts = sampled(Speculation("wrong", chain(8), rows=64), 2)
    assert counts.drafted > 0
    assert counts.drafted < 0.5 * 8 * counts.rows


def test_with_many_requests_inside_it_does_not_guess():
    _, few = sampled(Speculation("suffix", chain(8, 0.05), least=0.05, rows=4), 1)
    _, many = sampled(Speculation("suffix", chain(8, 0.05), least=0.05, rows=64), 1)
    assert few.drafted < many.drafted


def test_a_table_guesses_what_came_next_and_forgets_what_is_old():
    table = NgramTable(kept=200)
    table.add([1, 2, 3, 4, 5] * 3, 0)
    assert table.next([1, 2, 3], 2) == [Guess(4, 3 / 4)]
    assert [g.token for g in table.after(DraftAsk(0, [1, 2, 3], (4, 5), 1, 0.5, Sampling()))] == [1]
    assert table.next([9, 9, 9], 4) == []
    rng = np.random.default_rng(0)
    for _ in range(20):
        table.add(rng.integers(10, 1000, 60).tolist(), 0)
        assert len(table) < 800
    assert table.next([1, 2, 3], 4) == []


UNKNOWN = (
    "suffx", "ngram:", "ngram:x", "suffix:0", "suffix:-2", "off:3", "nano:9x9x9", "suffix:spine", "nowhere:6",
    "suffix:3x0", "suffix:200", "suffix:1+0x2",
)  # fmt: skip


@pytest.mark.parametrize("text", UNKNOWN)
def test_an_unknown_way_to_guess_is_one_sentence(text):
    with pytest.raises(EngineError) as raised:
        Speculation.of(text)
    assert "\n" not in str(raised.value)


def test_the_word_on_the_command_line():
    assert Speculation.of("off") is None
    assert Speculation.of("ngram") == Speculation("ngram")
    assert Speculation.of("nano:3x2") == Speculation("nano", GuessWidths((3, 2), 0.01))
    assert Speculation.of("adjacent:2+3x2") == Speculation("adjacent", GuessWidths((1, 1, 3, 1), 0.01))
    assert Speculation.of("heads:auto") == Speculation("heads", auto=True)
    assert Speculation.of("suffix:5") == Speculation("suffix", chain(5, 0.3))


def test_a_model_with_other_tokens_cannot_guess():
    other = load_model("nano")
    with pytest.raises(EngineError, match="tokens differ"):
        tiny.engine(speculate=Speculation(other))


def test_heads_need_an_output_layer_that_can_be_shared():
    with pytest.raises(EngineError, match="Llama family"):
        tiny.engine(tiny.gpt2(), speculate=Speculation("heads"))


@pytest.mark.parametrize("model", [tiny.llama, tiny.gpt2])
def test_a_model_that_cannot_read_branches_is_refused(monkeypatch, model):
    tiny.engine(model(), speculate=Speculation("suffix", GuessWidths((2, 2))))
    for kind in (LlamaDecoder, ForeignDecoder):
        whole = kind.extend
        monkeypatch.setattr(kind, "extend", lambda self, *a, whole=whole: whole(self, *a[:4]))
    with pytest.raises(EngineError, match="branches of a tree"):
        tiny.engine(model(), speculate=Speculation("suffix", GuessWidths((2, 2))))


def test_heads_learn_what_the_policy_writes():
    """They guess nothing before they have learned, and better than chance after."""
    how = Speculation("heads", chain(2), least=0.0, rows=64)

    async def main():
        engine, shares = engine64(speculate=how), []
        for again in range(4):
            before = engine.speculation.drafted, engine.speculation.accepted
            sampling = [Sampling(60, seed=100 * again + i, ignore_eos=True) for i in range(24)]
            await asyncio.gather(*(engine.submit(Request(PREFIXES[2], one)) for one in sampling))
            drafted, accepted = engine.speculation.drafted - before[0], engine.speculation.accepted - before[1]
            shares.append(accepted / drafted if drafted else 0.0)
            await engine.learn()
        await engine.close()
        return shares, engine.speculation.trained

    shares, trained = asyncio.run(main())
    assert trained > 150
    assert shares[0] == 0.0
    assert shares[-1] > 2 / tiny.VOCAB


def test_a_drafter_that_cannot_be_trained_ends_nobody(monkeypatch):
    monkeypatch.setattr(speculate.spec.Heads, "_step", lambda self: 1 / 0)
    plain, _ = unguessed(False)
    guessed, counts = sampled(Speculation("heads", rows=64))
    assert counts.trained == 0
    assert [a.actions.tolist() for a, _ in plain] == [b.actions.tolist() for b, _ in guessed]
