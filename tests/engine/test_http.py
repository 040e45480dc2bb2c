"""The HTTP engine against a real server on loopback: the contract, and what it does when the server misbehaves."""

import asyncio
import socket
import threading
import time

import numpy as np
import pytest

from rolltree.control.ledger import Budget
from rolltree.engine.http import connect
from rolltree.engine.http.client import Client, Wire, _wait_asked
from rolltree.engine.protocol import EngineError, Request, Sampling
from rolltree.engine.segments import SegmentPatience
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.testing.engine import check_running
from rolltree.testing.tiny import CODEC, SpellTask, policy, tiny_engine
from tests.engine.serving import ENDLESS, ODD, Fault, serving

PREFIX = np.array([3, 1, 4], np.int32)
QUICK = SegmentPatience(tries=4, first=0.001, longest=0.002)


def run(main):
    return asyncio.run(asyncio.wait_for(main, 300))


async def connected(server, **how):
    return await connect(server.address, CODEC, patience=how.pop("patience", QUICK), **how)


async def sample(engine, want=(), **knobs):
    sampling = Sampling(**{"max_tokens": 12, "ignore_eos": True} | knobs)
    return await engine.submit(Request(PREFIX, sampling, frozenset(want)))


def is_exact(got, prefix=PREFIX):
    """Every token's log-prob is the policy's after exactly the tokens before it."""
    path = prefix.tolist()
    for action, logp in zip(got.actions.tolist(), got.logp, strict=True):
        assert np.isclose(np.log(policy(tuple(path))[action]), logp, atol=1e-5)
        path.append(action)


FEW = Letters("abcdef", eos_id=6)


def few(prefix):
    """A policy on seven ids, so that thousands of whole distributions are small messages."""
    weights = np.array([1.0 + (len(prefix) * 5 + sum(prefix[-2:]) * 3 + i * i) % 7 for i in range(6)])
    return [*(0.95 * weights / weights.sum()), 0.05]


def few_engine():
    return TabularEngine(few, FEW, max_context=256)


@pytest.mark.parametrize("distribution", [False, True])
def test_it_keeps_the_contract_whether_the_server_reports_the_policy_or_the_distribution(distribution):
    # Where the distribution is reported it is compared below, and alternatives off the policy are refused.
    skip = ["sampling_follows_the_distribution", "extras_describe_the_policy"] if distribution else []

    async def main():
        async with serving(make_engine=few_engine, distribution=distribution) as server:
            engine = await connect(server.address, FEW, patience=QUICK)
            assert engine.capabilities.max_top == FEW.vocab_size
            assert ("entropy:full" in engine.capabilities.features) != distribution
            await check_running(engine, PREFIX.tolist(), skip=skip)
            await engine.close()

    run(main())


def server_side(body):
    s = Sampling(
        max_tokens=body["max_tokens"], temperature=body["temperature"], top_p=body["top_p"],
        top_k=max(body["top_k"], 0), seed=body["seed"], ignore_eos=True,
    )  # fmt: skip
    return Request(np.array(body["prompt"], np.int32), s)


def test_a_reported_distribution_and_the_policy_read_afterwards_are_both_exact():
    async def main():
        async with serving(distribution=True) as server:
            engine = await connected(server)
            got = await sample(engine, temperature=0.7, top_p=0.8, max_tokens=20, seed=1)
            exact = await tiny_engine().submit(server_side(server.asked[-1]))
            assert got.actions.tolist() == exact.actions.tolist()
            assert np.allclose(got.sampling_logprob, exact.sampling_logprob, atol=1e-5)
            assert np.allclose(got.logp, exact.logp, atol=1e-5)
            await engine.close()

    run(main())


def test_with_few_alternatives_the_distribution_is_known_under_top_k_and_refused_otherwise():
    async def main():
        async with serving(most=5) as server:
            engine = await connected(server)
            assert engine.capabilities.max_top == 5
            got = await sample(engine, temperature=0.7, top_k=4, top_p=0.8, max_tokens=20, seed=1)
            exact = await tiny_engine().submit(server_side(server.asked[-1]))
            assert got.actions.tolist() == exact.actions.tolist()
            assert np.allclose(got.sampling_logprob, exact.sampling_logprob, atol=1e-5)
            assert np.allclose(got.logp, exact.logp, atol=1e-5)
            with pytest.raises(EngineError, match="top_k from 1 to 5"):
                await sample(engine, temperature=0.7)
            with pytest.raises(EngineError, match="cannot give 'entropy'"):
                await sample(engine, {"entropy"})
            await engine.close()

    run(main())


def test_alternatives_under_another_distribution_than_the_policy_are_refused():
    async def main():
        async with serving(distribution=True) as server:
            engine = await connected(server)
            assert (await sample(engine, {"top:3"})).top.ids.shape == (12, 3)
            with pytest.raises(EngineError, match="under the distribution sampled from"):
                await sample(engine, {"top:3"}, temperature=0.5)
            await engine.close()

    run(main())


@pytest.mark.parametrize("then", ["cut", "abort", "error", ""])
def test_a_broken_stream_is_continued_from_its_last_token(then):
    async def main():
        async with serving() as server:
            engine = await connected(server)
            server.faults = [Fault(after=5, then=then) if then else Fault(500), Fault(503), Fault(after=3, then="cut")]
            run = engine.submit(Request(PREFIX, Sampling(max_tokens=20, ignore_eos=True, seed=7)))
            parts = [part async for part in run]
            got = await run
            assert np.array_equal(np.concatenate([p.actions for p in parts]), got.actions)
            assert (len(got.actions), got.finish) == (20, "length")
            is_exact(got)
            # Each call asked for what was missing and no more, with a stream of randomness of its own.
            first = 5 if then else 0
            assert [len(b["prompt"]) - 3 for b in server.asked] == [0, first, first, first + 3]
            assert [b["max_tokens"] for b in server.asked] == [20, 20 - first, 20 - first, 17 - first]
            seeds = [b["seed"] for b in server.asked]
            assert len(set(seeds)) == (3 if then else 2)
            await engine.close()

    run(main())


def test_a_server_that_falls_silent_is_given_up_and_asked_again():
    async def main():
        async with serving() as server:
            engine = await connected(server, wire=Wire(silence_seconds=0.2))
            server.faults = [Fault(after=4, then="hush")]
            got = await sample(engine, seed=1)
            is_exact(got)
            assert [b["max_tokens"] for b in server.asked] == [12, 8]
            await engine.close()

    run(main())


@pytest.mark.parametrize("then", [*sorted(ENDLESS.keys() - {"babble"}), *ODD])
def test_a_server_that_never_ends_or_sends_nonsense_is_hung_up_on_and_asked_again(then):
    async def main():
        async with serving() as server:
            engine = await connected(server, wire=Wire(silence_seconds=0.3))
            server.faults = [Fault(after=4, then=then)]
            got = await asyncio.wait_for(sample(engine, seed=1), 300)
            is_exact(got)
            assert [b["max_tokens"] for b in server.asked] == [12, 8]
            await engine.close()

    run(main())


def test_a_server_that_writes_on_behind_the_end_is_not_heard():
    async def main():
        async with serving() as server:
            engine = await connected(server)
            server.faults = [Fault(after=12, then="babble")]
            got = await asyncio.wait_for(sample(engine, seed=1, max_tokens=12), 300)
            assert (len(got.actions), got.finish) == (12, "length")
            is_exact(got)
            await engine.close()

    run(main())


@pytest.mark.parametrize(
    "answer",
    [b"[" * 300_000, b'{"data": 7}', b'{"data": [{}]}', b"7", b"[]", b'{"data": [{"id": "m", "max_model_len": {}}]}'],
)  # fmt: skip
def test_a_server_with_answers_of_its_own_is_one_sentence(answer):
    async def main():
        async with serving() as server:
            server.list_as = answer
            with pytest.raises(EngineError, match=server.address):
                await asyncio.wait_for(connected(server), 300)

    run(main())


def test_an_endless_answer_is_cut_and_a_wait_asked_for_is_bounded():
    async def main():
        async with serving() as server:
            server.list_as = None
            with pytest.raises(EngineError, match="longer than"):
                await asyncio.wait_for(connected(server), 300)

    run(main())
    assert _wait_asked("1e99") == 600.0
    assert _wait_asked("nan") == _wait_asked("inf") == _wait_asked("-3") == _wait_asked("soon") == 0.0


def test_refusals_are_final_and_failures_are_counted():
    async def main():
        async with serving() as server:
            engine = await connected(server)
            server.faults = [Fault(422)]
            with pytest.raises(EngineError, match=r"refused a request \(422\): later"):
                await sample(engine)
            assert len(server.asked) == 1
            server.faults = [Fault(502)] * 4
            with pytest.raises(EngineError, match=r"failed 4 times in a row.*502"):
                await sample(engine)
            assert len(server.asked) == 5
            # Tokens that came in between start the count anew.
            server.faults = [Fault(502)] * 3 + [Fault(after=1, then="cut")] + [Fault(502)] * 2
            is_exact(await sample(engine))
            await engine.close()

    run(main())


def test_a_busy_server_is_left_alone_for_as_long_as_it_asks():
    async def main():
        async with serving() as server:
            engine = await connected(server)
            server.faults = [Fault(429, headers={"Retry-After": "0.3"})]
            began = asyncio.get_running_loop().time()
            await sample(engine)
            assert asyncio.get_running_loop().time() - began >= 0.3
            await engine.close()

    run(main())


def test_no_more_requests_are_sent_than_places():
    async def main():
        async with serving() as server:
            engine = await connected(server, wire=Wire(in_flight=3))
            server.hold.clear()
            runs = [engine.submit(Request(PREFIX, Sampling(max_tokens=4, seed=i))) for i in range(10)]
            while server.open < 3:
                await asyncio.sleep(0)
            # What waits here can be taken back without the server ever seeing it.
            runs[9].stop("budget")
            assert (await runs[9]).finish == "budget"
            server.hold.set()
            await asyncio.gather(*runs)
            assert server.widest == 3
            assert len(server.asked) == 9
            await engine.close()

    run(main())


def test_stopping_keeps_what_was_streamed_and_hangs_up():
    async def main():
        async with serving() as server:
            engine = await connected(server)
            run = engine.submit(Request(PREFIX, Sampling(max_tokens=200, ignore_eos=True)))
            async for part in run:
                if len(part.actions):
                    server.hold.clear()
                    run.stop()
            got = await run
            server.hold.set()
            assert got.finish == "abort"
            assert 0 < len(got.actions) < 200
            is_exact(got)
            while server.open:
                await asyncio.sleep(0)
            assert server.hung_up == 1
            await engine.close()

    run(main())


def test_a_stop_under_a_reported_distribution_waits_for_the_log_probs_of_the_policy():
    async def main():
        async with serving(distribution=True) as server:
            engine = await connected(server)
            run = engine.submit(Request(PREFIX, Sampling(max_tokens=200, ignore_eos=True, temperature=0.5)))
            while not run.holding:
                await asyncio.sleep(0)
            run.stop("budget")
            got = await run
            assert got.finish == "budget"
            assert len(got.actions)
            is_exact(got)
            assert not np.allclose(got.logp, got.sampling_logprob)
            await engine.close()

    run(main())


def test_a_killed_and_restarted_server_loses_and_doubles_nothing():
    async def main():
        async with serving() as server:
            # A connection taken up while the server dies may hang without a word: that too is given up.
            patience, wire = SegmentPatience(tries=200, first=0.001, longest=0.01), Wire(silence_seconds=0.5)
            engine = await connected(server, patience=patience, wire=wire)
            budget = Budget()
            task = SpellTask(max_tokens=24)
            items = [item for item, _ in zip(task.items("train"), range(8), strict=False)]
            growing = asyncio.ensure_future(
                grow(Independent(4), engine, task, items, seed=0, budget=budget, sampling=Sampling())
            )
            for _ in range(3):
                while server.open < 4 and not growing.done():
                    await asyncio.sleep(0)
                await server.stop()
                await server.start()
            forest = await growing
            leaves = [(tree, leaf) for tree, leaf in forest.leaves()]
            assert len(leaves) == 32
            assert all(leaf.status == "done" for _, leaf in leaves)
            assert budget.spent.decoded == sum(len(n) for t in forest for n in t if n.role == "policy")
            for tree, leaf in leaves:
                path = np.concatenate([n.actions for n in tree.path(leaf)[:-1]])
                is_exact(leaf, path)
            await engine.close()

    run(main())


def test_a_server_that_comes_back_with_other_weights_is_refused():
    async def main():
        async with serving() as server:
            engine = await connected(server)
            server.faults = [Fault(after=2, then="cut")]
            served = server.engine
            uniform = TabularEngine(lambda _: [1 / 27] * 27, CODEC)

            def swap():
                server.engine = uniform

            run = engine.submit(Request(PREFIX, Sampling(max_tokens=8, ignore_eos=True)))
            async for _ in run:
                swap()
                break
            with pytest.raises(EngineError, match="came back with other weights"):
                await run
            server.engine = served
            is_exact(await sample(engine))
            await engine.close()

    run(main())


def test_connecting_says_what_is_wrong():
    async def main():
        async with serving() as server:
            with pytest.raises(EngineError, match="smaller vocabulary than the policy's 40 tokens"):
                await connect(server.address, Letters("abcdefghijklmnopqrstuvwxyz0123456789.,;:"))
            with pytest.raises(EngineError, match="does not serve 'other'; it serves tiny"):
                await connected(server, model="other")
            server.token_ids = False
            with pytest.raises(EngineError, match="does not return token ids"):
                await connected(server)
        with pytest.raises(EngineError, match=r"no server answers at http://127\.0\.0\.1"):
            await connected(server)

    run(main())


def test_a_server_with_a_larger_vocabulary_is_refused_when_it_shows():
    async def main():
        async with serving() as server:
            engine = await connect(server.address, Letters("abcdefghij"), patience=QUICK)
            with pytest.raises(EngineError, match="outside the vocabulary of 10: it has another model"):
                await asyncio.gather(*(sample(engine, seed=i, max_tokens=60) for i in range(8)))
            await engine.close()

    run(main())


def test_what_a_served_policy_cannot_do_is_said():
    async def main():
        async with serving() as server:
            engine = await connected(server)
            with pytest.raises(EngineError, match="takes no new weights"):
                await engine.update_weights({}, 1)
            with pytest.raises(EngineError, match="cannot call a hook"):
                await sample(engine, hook=lambda done, logits: logits)
            with pytest.raises(EngineError, match="cannot give 'hidden'"):
                await sample(engine, {"hidden"})
            await engine.close()
            with pytest.raises(EngineError, match="closed"):
                await sample(engine)

    run(main())


def test_the_cache_is_counted_where_the_server_tells():
    async def main():
        async with serving() as server:
            engine = await connected(server)
            assert (await sample(engine)).prefilled == len(PREFIX) - 1
            await engine.close()

    run(main())


def test_a_connection_the_server_has_left_is_not_used_again(monkeypatch):
    """uvicorn hangs up on a connection idle for five seconds; a request sent over it would be lost."""
    left, answer = (
        threading.Event(),
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    )

    def serve(listening):
        for last in (False, True):
            connection, _ = listening.accept()
            while not connection.recv(65536).endswith(b"}"):
                pass
            connection.sendall(answer)
            if last:
                connection.recv(1)
            connection.close()
            left.set()

    async def main(address):
        client = Client(address, Wire())
        try:
            assert await client.post("/first", {}) == {}
            assert left.wait(30)  # the loop stands still, as it does while weights are written: it sees no hanging up
            later = time.monotonic() + 4
            monkeypatch.setattr("aiohttp.connector.monotonic", lambda: later)
            assert await client.post("/second", {}) == {}
        finally:
            await client.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=serve, args=(listening,))
        server.start()
        asyncio.run(main(f"http://127.0.0.1:{listening.getsockname()[1]}"))
        server.join(300)
        assert not server.is_alive()
