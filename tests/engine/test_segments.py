"""Runs written in segments, over an exact backend: the contract, versions across updates, and the distribution
recovered."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolltree.engine.protocol import EngineError, Request, Sampling
from rolltree.engine.segments import BrokenError, Piece, Reach, SegmentEngine, SegmentPatience, SegmentRead
from rolltree.engine.segments.distribution import distribution_of, neutral
from rolltree.engine.segments.writer import Turnstile
from rolltree.engine.tabular import TabularEngine
from rolltree.testing.engine import CHECKS, run_check, truncated
from rolltree.testing.tiny import CODEC, policy

PREFIX = np.array([3, 1, 4], np.int32)


def other(prefix):
    """Another policy on the same ids."""
    return policy((*prefix, 1))


class Exact:
    """A backend over the tabular engine; `lump` tokens come in one piece, and stop ids are overrun within it. With
    `keeps` as many come together as the ask allows, and what is held is handed over at a cancellation."""

    name = "the exact backend"

    def __init__(self, of_sampling=False, lump=1, updates=True, keeps=False):
        self.inner = TabularEngine(policy, CODEC, max_context=256)
        self.reach = Reach(CODEC.vocab_size, 256, CODEC.vocab_size, of_sampling=of_sampling, updates=updates)
        self.version = 0
        self.lump, self.keeps = lump, keeps
        self.made = 0
        self.salts, self.calls, self.working = [], 0, 0
        self.broken = 0
        self.lingers = False
        self.answers = asyncio.Event()
        self.answers.set()

    async def write(self, ask):
        self.calls += 1
        self.salts.append(ask.salt)
        if self.broken:
            self.broken -= 1
            raise BrokenError("away")
        s = ask.sampling
        distribution = Sampling(
            max_tokens=ask.most, temperature=s.temperature, top_p=s.top_p, top_k=s.top_k, seed=ask.seed,
            stop_ids=ask.ends if self.lump == 1 else (), ignore_eos=True,
        )  # fmt: skip
        self.working += 1
        run = self.inner.submit(
            Request(np.array(ask.tokens, np.int32), distribution, frozenset({f"top:{ask.alternatives}"} - {"top:0"}))
        )
        held, first = [], len(ask.tokens)
        together = ask.together if self.keeps else self.lump
        try:
            async for part in run:
                logp = part.sampling_logprob if self.reach.of_sampling and s.temperature else part.logp
                rows = [] if part.top is None else list(zip(part.top.ids.tolist(), part.top.logp.tolist(), strict=True))
                held += zip(part.actions.tolist(), logp.tolist(), rows or [()] * len(logp), strict=True)
                self.made += len(logp)
                if len(held) >= together:
                    yield _piece(held, first)
                    held, first = [], 0
            if self.lingers:
                yield _piece(held, first)
                await asyncio.Event().wait()
            yield _piece(held, first, finish="length" if (await run).finish == "length" else "stop")
        except asyncio.CancelledError:
            if ask.together == 1 or not self.keeps:
                raise
            yield _piece(held, first, finish="abort")
        finally:
            run.stop()
            self.working -= 1

    async def read(self, tokens, start, alternatives):
        await self.answers.wait()
        scored = await self.inner.score(np.array(tokens), start)
        rows = [self.inner.row(tuple(tokens[:i])) for i in range(start, len(tokens))] if alternatives else []
        order = [np.argsort(-row, kind="stable") for row in rows]
        return SegmentRead(
            scored.logp.tolist(), [(o.tolist(), row[o].tolist()) for o, row in zip(order, rows, strict=True)]
        )

    async def load(self, weights, version):
        assert self.working == 0
        await self.inner.update_weights(weights, version)
        self.version = version

    async def close(self):
        await self.inner.close()


def _piece(held, prefilled, finish=""):
    ids, logp, rows = ([h[i] for h in held] for i in range(3))
    return Piece(ids, logp, [r for r in rows if r], prefilled=prefilled, finish=finish)


def engine(**how):
    return SegmentEngine(Exact(**how), CODEC, patience=SegmentPatience(tries=3, first=0.0, longest=0.0), seed=0)


def exact(sample, start, stop, distribution):
    path = [*PREFIX.tolist(), *sample.actions.tolist()]
    want = [np.log(distribution(tuple(path[: 3 + i]))[path[3 + i]]) for i in range(start, stop)]
    return np.allclose(want, sample.logp[start:stop], atol=1e-5)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("how", [{"lump": 1}, {"lump": 5}, {"keeps": True}], ids=["single", "lumps", "kept"])
def test_it_keeps_the_contract(check, how):
    if how != {"lump": 1} and check.__name__ == "sampling_follows_the_distribution":
        pytest.skip("one token a request, whatever the lumps")
    run_check(check, lambda: engine(**how), prefix=PREFIX.tolist())


@pytest.mark.parametrize("distribution", [False, True])
@pytest.mark.parametrize("stop", [(), ("~",), ("~~",)])
def test_a_stop_keeps_every_token_that_was_made_and_not_yet_handed_over(stop, distribution):
    async def main():
        e = engine(keeps=True, of_sampling=distribution)
        run = e.submit(Request(PREFIX, Sampling(max_tokens=200, ignore_eos=True, seed=2, stop=stop, temperature=0.9)))
        while e.backend.made < 9:
            await asyncio.sleep(0)
        together = len(run.written) < 9
        run.stop("budget")
        got = await run
        assert together == (distribution or stop != ("~~",))
        assert (got.finish, len(got.actions)) == ("budget", e.backend.made)
        assert exact(got, 0, len(got.actions), policy)
        await e.close()

    asyncio.run(main())


def test_whoever_watches_gets_tokens_one_by_one_and_whoever_awaits_gets_the_same_ones():
    async def main():
        e = engine(keeps=True)
        knobs = Sampling(max_tokens=40, ignore_eos=True, seed=6)
        sizes = [len(part.actions) async for part in e.submit(Request(PREFIX, knobs))]
        whole = await e.submit(Request(PREFIX, knobs))
        assert sizes == [1] * 40
        parts = [p.actions async for p in e.submit(Request(PREFIX, knobs))]
        assert np.array_equal(np.concatenate(parts), whole.actions)
        await e.close()

    asyncio.run(main())


def test_a_pause_keeps_what_was_held_and_the_run_goes_on_from_there():
    async def main():
        e = engine(keeps=True)
        run = e.submit(Request(PREFIX, Sampling(max_tokens=60, ignore_eos=True, seed=4)))
        while e.backend.made < 9:
            await asyncio.sleep(0)
        await e.pause()
        assert len(run.written) == e.backend.made >= 9
        await e.update_weights(other, 1)
        cut = len(run.written)
        await e.resume()
        got = await run
        assert got.version.tolist() == [0] * cut + [1] * (60 - cut)
        assert exact(got, 0, cut, policy)
        assert exact(got, cut, 60, other)
        await e.close()

    asyncio.run(main())


@pytest.mark.parametrize("distribution", [False, True])
def test_an_update_in_flight_starts_a_segment_of_the_new_version(distribution):
    async def main():
        e = engine(of_sampling=distribution)
        knobs = Sampling(max_tokens=60, ignore_eos=True, seed=4, temperature=0.5 if distribution else 1.0)
        run = e.submit(Request(PREFIX, knobs))
        while not (run.written or run.holding):
            await asyncio.sleep(0)
        await e.pause()
        cut = len(run.written)
        late = e.submit(Request(PREFIX, Sampling(max_tokens=3, ignore_eos=True)))
        await e.update_weights(other, 5)
        await asyncio.sleep(0)
        assert len(run.written) == cut > 0
        await e.resume()
        got = await run
        assert got.version.tolist() == [0] * cut + [5] * (60 - cut)
        assert exact(got, 0, cut, policy)
        assert exact(got, cut, 60, other)
        assert (await late).version.tolist() == [5, 5, 5]
        await e.update_weights(policy, 6, caches="keep")
        await e.submit(Request(PREFIX, Sampling(max_tokens=1)))
        assert list(dict.fromkeys(e.backend.salts)) == ["rolltree-0", "rolltree-5"]
        assert got.prefilled == 3 + 3 + cut
        await e.close()

    asyncio.run(main())


def test_scores_wait_for_an_update_and_updates_for_scores():
    async def main():
        e = engine()
        tokens = np.append(PREFIX, 2)
        e.backend.answers.clear()
        first = asyncio.create_task(e.score(tokens, 3))
        await asyncio.sleep(0)
        update = asyncio.create_task(e.update_weights(other, 1))
        for _ in range(5):
            await asyncio.sleep(0)
        assert e.version == 0
        second = asyncio.create_task(e.score(tokens, 3))
        await asyncio.sleep(0)
        e.backend.answers.set()
        before, _, after = await asyncio.gather(first, update, second)
        assert (before.version, after.version) == (0, 1)
        assert np.isclose(before.logp[0], np.log(policy((3, 1, 4))[2]))
        assert np.isclose(after.logp[0], np.log(other((3, 1, 4))[2]))
        await e.close()

    asyncio.run(main())


def test_breaks_are_counted_until_something_comes():
    async def main():
        e = engine()
        e.backend.broken = 2
        assert len((await e.submit(Request(PREFIX, Sampling(max_tokens=4, ignore_eos=True)))).actions) == 4
        e.backend.broken = 3
        with pytest.raises(EngineError, match="failed 3 times in a row: away"):
            await e.submit(Request(PREFIX, Sampling(max_tokens=4)))
        await e.close()

    asyncio.run(main())


@pytest.mark.parametrize("distribution", [False, True])
def test_nothing_is_written_behind_the_end_when_a_call_is_interrupted_after_its_last_token(distribution):
    async def main():
        e = engine(of_sampling=distribution)
        e.backend.lingers = True
        run = e.submit(Request(PREFIX, Sampling(max_tokens=4, ignore_eos=True, temperature=0.5)))
        while len(run.written) < 4 and not run.holding:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not run.ended
        await e.pause()
        got = await run
        assert (got.finish, len(got.actions)) == ("length", 4)
        assert exact(got, 0, 4, policy)
        assert e.backend.calls == 1
        await e.close()

    asyncio.run(main())


@pytest.mark.parametrize("read", ["works", "fails"])
def test_a_stop_while_log_probs_are_to_be_read_ends_the_run_either_way(read):
    async def main():
        e = engine(of_sampling=True)
        run = e.submit(Request(PREFIX, Sampling(max_tokens=100, ignore_eos=True, temperature=0.5)))
        while not run.holding:
            await asyncio.sleep(0)
        if read == "fails":
            e.backend.read = None
        run.stop("budget")
        got = await run
        assert got.finish == "budget"
        assert (len(got.actions) > 0) == (read == "works")
        assert exact(got, 0, len(got.actions), policy)
        await e.close()

    asyncio.run(main())


def test_closing_ends_what_is_in_flight_with_what_it_has():
    async def main():
        e = engine()
        run = e.submit(Request(PREFIX, Sampling(max_tokens=200, ignore_eos=True)))
        while not run.written:
            await asyncio.sleep(0)
        await e.close()
        got = await run
        assert got.finish == "abort"
        assert exact(got, 0, len(got.actions), policy)
        with pytest.raises(EngineError, match="closed"):
            e.submit(Request(PREFIX))

    asyncio.run(main())


def test_a_break_during_an_update_is_an_error_of_the_engine():
    async def main():
        e = engine()

        async def load(weights, version):
            raise BrokenError("it answered 500")

        e.backend.load = load
        with pytest.raises(EngineError, match=r"broke while it was to take version 1: it answered 500"):
            await e.update_weights(other, 1)
        assert e.version == 0
        assert len((await e.submit(Request(PREFIX, Sampling(max_tokens=3, ignore_eos=True)))).actions) == 3
        await e.close()

    asyncio.run(main())


def test_what_cannot_be_updated_says_so():
    async def main():
        e = engine(updates=False)
        assert "update" not in e.capabilities.features
        with pytest.raises(EngineError, match="takes no new weights"):
            await e.update_weights(other, 1)
        await e.close()

    asyncio.run(main())


@given(
    st.lists(st.floats(-8, 0), min_size=2, max_size=12, unique_by=lambda x: round(x, 3)),
    st.floats(0.2, 3.0),
    st.integers(0, 12),
    st.floats(0.1, 1.0),
)
def test_the_distribution_follows_from_the_alternatives_that_top_k_keeps(logits, temperature, top_k, top_p):
    logp = np.array(logits) - np.logaddexp.reduce(logits)
    want = truncated(logp, temperature, top_k, top_p)
    order = np.argsort(-logp)
    best = logp[order][: top_k or None]
    s = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    for token in np.flatnonzero(np.isfinite(want)):
        got = distribution_of(logp[token : token + 1], best[None], s)
        assert np.isclose(got[0], want[token], atol=1e-6)


def test_neutral_is_the_policy_itself():
    assert neutral(Sampling(), 10)
    assert neutral(Sampling(top_k=10), 10)
    assert not neutral(Sampling(top_k=9), 10)
    assert not neutral(Sampling(temperature=0.99), 10)


def test_a_turnstile_closed_twice_opens_when_both_let_go():
    async def main():
        gate, seen = Turnstile(), list[str]()

        async def work():
            async with gate:
                seen.append("in")

        await gate.close()
        await gate.close()
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        gate.open()
        await asyncio.sleep(0)
        assert seen == []
        gate.open()
        await task
        assert seen == ["in"]

    asyncio.run(main())


@pytest.mark.parametrize("call", ["pause", "update"])
def test_whoever_gives_up_a_pause_or_an_update_leaves_no_gate_closed(call):
    async def main():
        for turns in range(12):
            e = engine()
            runs = [e.submit(Request(PREFIX, Sampling(max_tokens=20, ignore_eos=True, seed=i))) for i in range(3)]
            for _ in range(4):
                await asyncio.sleep(0)
            e.backend.answers.clear()
            reading = asyncio.ensure_future(e.score(np.array([1, 2, 3]), 1))
            await asyncio.sleep(0)
            asked = asyncio.ensure_future(e.pause() if call == "pause" else e.update_weights(other, 1))
            for _ in range(turns):
                await asyncio.sleep(0)
            paused = asked.done()
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            e.backend.answers.set()
            if paused:
                await e.resume()
            got = await asyncio.wait_for(asyncio.gather(*runs), 300)
            assert all(len(sample.actions) == 20 for sample in got)
            await asyncio.wait_for(reading, 300)
            await asyncio.wait_for(e.update_weights(other, 2), 300)
            await e.close()

    asyncio.run(main())


def test_a_reading_in_a_form_nobody_foresaw_is_an_engine_error():
    async def main():
        e = engine()

        async def read(tokens, start, alternatives):
            return {}["choices"]

        e.backend.read = read
        with pytest.raises(EngineError, match=r"the exact backend failed: KeyError"):
            await e.score(np.array([1, 2, 3]), 1)
        await e.close()

    asyncio.run(main())
