"""Calls answered by a search: the best path's very tokens, its cost bounded and kept, over HTTP as any other answer."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

import aiohttp
import numpy as np
import pytest

from rolltree.cli import main
from rolltree.engine.protocol import EngineError, Request, Sampling
from rolltree.engine.tabular import TabularEngine
from rolltree.gateway.gateway import Gateway
from rolltree.gateway.server import serving
from rolltree.generate import searched as searching
from rolltree.generate.judge.measured import answer_of
from rolltree.generate.search.bestof import BestOf
from rolltree.generate.searched import SearchedEngine
from rolltree.policy.codec import HFCodec
from rolltree.task.final import final_answer
from tests.gateway.chats import tokenizer
from tests.gateway.policies import letters

ASKED = {"messages": [{"role": "user", "content": "which?"}], "max_tokens": 8, "seed": 3}


def votes():
    """Says 7 six times in ten, 1 or 2 else, and ends."""
    codec = HFCodec(tokenizer("hermes"))
    said = {codec.encode(c)[0]: p for c, p in (("7", 0.6), ("1", 0.2), ("2", 0.2))}
    ends = [1.0 if i == codec.eos_id else 0.0 for i in range(codec.vocab_size)]
    row = [said.get(i, 0.0) for i in range(codec.vocab_size)]
    return TabularEngine(lambda prefix: ends if int(prefix[-1]) in said else row, codec)


class Lone:
    """A strategy that breaks, or stands still."""

    needs = frozenset[str]()

    def __init__(self, error=None):
        self.error, self.begun = error, asyncio.Event()

    async def grow_tree(self, tree, hand):
        self.begun.set()
        if self.error is not None:
            raise self.error
        await hand.extend(tree.root)
        await asyncio.Event().wait()


def searched(engine, strategy=None, **knobs):
    kept = []
    made = SearchedEngine(engine, strategy or BestOf(n=9), on_search=kept.extend, **knobs)
    return made, kept


def test_the_answer_is_a_path_of_the_tree_that_most_agree_with():
    async def work():
        engine, kept = searched(votes())
        prompt = np.asarray(engine.codec.encode("<|im_start|>user\nwhich?"), np.int32)
        samples = [await engine.submit(Request(prompt, Sampling(max_tokens=4, seed=s))) for s in range(60)]
        again = await engine.submit(Request(prompt, Sampling(max_tokens=4, seed=7)))
        assert again.actions.tolist() == samples[7].actions.tolist()
        for tree, sample in zip(kept, samples, strict=False):
            count = Counter(answer_of(leaf) for leaf in tree.leaves())
            assert sum(count.values()) == 9
            assert count[engine.codec.decode(sample.actions)] == max(count.values())
            assert sample.finish == "eos"
            read = await engine.score(np.concatenate([prompt, sample.actions]), len(prompt))
            assert sample.logp == pytest.approx(read.logp, abs=1e-6)
            assert np.isnan(sample.sampling_logprob).all(), "it was chosen, so nobody knows how likely it was"
            assert not sample.keep.any()
        right = sum(engine.codec.decode(s.actions) == "7" for s in samples)
        assert right >= 43, "the majority of nine votes of .6, .2 and .2 is right in .876 of all; four deviations below"

    asyncio.run(work())


def test_tokens_bound_a_search_and_too_few_are_said():
    async def work():
        engine, kept = searched(votes(), BestOf(n=500, wave=1), tokens=10)
        prompt = np.asarray(engine.codec.encode("a"), np.int32)
        await engine.submit(Request(prompt, Sampling(max_tokens=4)))
        assert sum(len(node) for node in kept[0] if node.role == "policy") == 10
        engine, _ = searched(votes(), tokens=0)
        with pytest.raises(EngineError, match="BestOf finished no rollout; give it more tokens"):
            await engine.submit(Request(prompt, Sampling(max_tokens=4)))

    asyncio.run(work())


def test_stopped_it_hands_over_nothing_unfinished_and_a_crash_is_no_answer():
    async def work():
        stuck = Lone()
        engine, kept = searched(votes(), stuck)
        prompt = np.asarray(engine.codec.encode("a"), np.int32)
        run = engine.submit(Request(prompt, Sampling(max_tokens=1)))
        await stuck.begun.wait()
        run.stop("abort")
        sample = await run
        assert (sample.finish, len(sample.actions)) in {("abort", 0), ("length", 1)}
        assert len(kept) == 1
        engine, _ = searched(votes(), Lone(ZeroDivisionError("by nought")))
        with pytest.raises(EngineError, match=r"Lone crashed: .*by nought"):
            await engine.submit(Request(prompt, Sampling(max_tokens=1)))
        with pytest.raises(EngineError, match="takes no logits hook"):
            engine.submit(Request(prompt, Sampling(hook=lambda seen, row: row)))
        with pytest.raises(EngineError, match="has no entropy"):
            engine.submit(Request(prompt, Sampling(), frozenset({"entropy:full"})))

    asyncio.run(work())


@pytest.mark.parametrize("how", ["stopped", "given up", "no text"])
def test_a_search_ends_whatever_becomes_of_it(how, monkeypatch):
    async def work():
        engine, _ = searched(votes(), Lone())
        prompt = np.asarray(engine.codec.encode("a"), np.int32)
        if how == "no text":
            monkeypatch.setattr(searching, "exact_text", lambda *_: 1 // 0)
        run = engine.submit(Request(prompt, Sampling(max_tokens=1)))
        if how == "stopped":
            run.stop("abort")
            assert (await asyncio.wait_for(run, 300)).finish == "abort"
        elif how == "given up":
            waiting = asyncio.ensure_future(asyncio.wait_for(run, 300))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert (await asyncio.wait_for(run, 300)).finish in ("abort", "length")
        else:
            with pytest.raises(ZeroDivisionError):
                await asyncio.wait_for(run, 300)

    asyncio.run(work())


@asynccontextmanager
async def served(engine):
    gateway = Gateway(engine, "tiny")
    async with serving(gateway) as (address, _), aiohttp.ClientSession() as http:
        yield gateway, http, address
    await engine.close()


def test_over_http_a_chat_goes_on_from_the_tokens_that_were_chosen():
    async def work():
        engine, kept = searched(letters(), BestOf(n=4, final="best"))
        async with served(engine) as (gateway, http, address):
            messages = list(ASKED["messages"])
            for _ in range(2):
                body = {**ASKED, "messages": messages}
                async with http.post(f"{address}/s/a/v1/chat/completions", json=body) as answer:
                    told = await answer.json()
                    assert answer.status == 200, told
                messages += [told["choices"][0]["message"], {"role": "user", "content": "and?"}]
            body = {**ASKED, "messages": messages, "stream": True, "n": 1}
            async with http.post(f"{address}/s/a/v1/chat/completions", json=body) as answer:
                assert "[DONE]" in await answer.text()
            session = gateway.sessions["a"]
            assert [len(c.prompt.spans) for c in session.record.calls] == [0, 1, 2], "spliced, never encoded again"
            assert len(kept) == 3
            for call, tree in zip(session.record.calls, kept, strict=True):
                assert tree.root.actions.tolist() == call.prompt.ids.tolist()
                (node,) = call.answers.values()
                assert node.actions.tolist() in [leaf.actions.tolist() for leaf in tree.leaves()]

    asyncio.run(work())


@pytest.mark.parametrize(("text", "answer"), [
    (r"so \boxed{\frac{1}{2}} it is", r"\frac{1}{2}"), ("It costs 3 and 4.\n#### 1,200", "1200"),
    ("The answer is **42**.", "42"), ("first 3, then 5.0", "5"), ("yes", "yes"), ("", None), ("w" * 300, None),
    ("Final answer: Paris", "Paris"),
])  # fmt: skip
def test_final_answers(text, answer):
    assert final_answer(text) == answer


@pytest.mark.papers("arpo", "ets")
@pytest.mark.parametrize(("options", "said"), [
    (["--strategy", "best_of_m"], "best_of_n"), (["--strategy", "best_of_n(k=3)"], "'k'"),
    (["--strategy", "best_of_n", "--strategy-tokens", "0"], "--strategy-tokens"),
    (["--searches", "x"], "does nothing without --strategy"), (["--strategy-tokens", "5"], "without --strategy"),
    (["--strategy", "arpo"], "environment"), (["--strategy", "ets", "--use-answers", "entropy"], "one of them"),
])  # fmt: skip
def test_what_cannot_be_served_is_said_before_anything_listens(capsys, options, said):
    assert main(["serve", *options]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
