"""Several servers as one engine: who gets what, what happens when one dies, and who has which weights."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import numpy as np
import pytest
import torch

from rolltree.control.ledger import Budget
from rolltree.engine.http import connect
from rolltree.engine.http.client import Wire
from rolltree.engine.protocol import EngineError, Request, Sampling
from rolltree.engine.segments import SegmentPatience
from rolltree.engine.tabular import TabularEngine
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.testing.engine import check_running
from rolltree.testing.tiny import CODEC, SpellTask
from tests.engine.serving import serving
from tests.engine.test_http import PREFIX, QUICK, is_exact, run

LONG = SegmentPatience(tries=200, first=0.001, longest=0.01)


@asynccontextmanager
async def several(count, *, patience=QUICK, version=None, wire=None):
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(serving()) for _ in range(count)]
        for server in servers:
            server.version = version
        engine = await connect(",".join(s.address for s in servers), CODEC, patience=patience, wire=wire)
        yield engine, servers
        await engine.close()


def asked(engine, affinity="", **knobs):
    sampling = Sampling(**{"max_tokens": 6, "ignore_eos": True} | knobs)
    return engine.submit(Request(PREFIX, sampling, affinity=affinity))


def test_it_keeps_the_contract():
    async def main():
        async with several(2) as (engine, _):
            await check_running(engine, PREFIX)

    run(main())


def test_a_group_stays_at_one_server_and_groups_are_shared_out():
    async def main():
        async with several(3) as (engine, servers):
            runs = [asked(engine, name) for name in "aaabbbccc"]
            await asyncio.gather(*runs)
            assert [len(server.asked) for server in servers] == [3, 3, 3]
            for server in servers:
                server.asked.clear()
            await asyncio.gather(*(asked(engine) for _ in range(9)))
            assert [len(server.asked) for server in servers] == [3, 3, 3]

    run(main())


def test_a_server_that_dies_for_good_loses_and_doubles_nothing():
    async def main():
        async with several(2, patience=LONG, wire=Wire(silence_seconds=0.5)) as (engine, servers):
            budget = Budget()
            task = SpellTask(max_tokens=24)
            items = [item for item, _ in zip(task.items("train"), range(8), strict=False)]
            growing = asyncio.ensure_future(
                grow(Independent(4), engine, task, items, seed=0, budget=budget, sampling=Sampling())
            )
            while servers[0].open < 4 and not growing.done():
                await asyncio.sleep(0)
            await servers[0].stop()
            forest = await growing
            leaves = list(forest.leaves())
            assert len(leaves) == 32
            assert all(leaf.status == "done" for _, leaf in leaves)
            assert budget.spent.decoded == sum(len(n) for t in forest for n in t if n.role == "policy")
            for tree, leaf in leaves:
                is_exact(leaf, np.concatenate([n.actions for n in tree.path(leaf)[:-1]]))
            before = len(servers[0].asked)
            is_exact(await asked(engine))
            assert len(servers[0].asked) == before

    run(main())


def test_new_weights_go_to_all_and_who_misses_them_gets_nothing_until_the_next(caplog):
    async def main():
        async with several(2, version=3) as (engine, servers):
            assert engine.version == 3
            weights = {"w": torch.zeros(2)}
            await engine.update_weights(weights, 4)
            assert engine.version == 4
            assert servers[0].loaded == servers[1].loaded, "they are written once"

            await servers[1].stop()
            await engine.update_weights(weights, 5)
            assert engine.version == 5
            assert "did not take version 5" in caplog.text
            await servers[1].start()
            for server in servers:
                server.asked.clear()
            runs = await asyncio.gather(*(asked(engine) for _ in range(4)))
            assert [set(sample.version.tolist()) for sample in runs] == [{5}] * 4
            assert [len(server.asked) for server in servers] == [4, 0], "its weights are of version 4"

            await engine.update_weights(weights, 6)
            await asyncio.gather(*(asked(engine) for _ in range(4)))
            assert len(servers[1].asked) == 2
            assert servers[1].version == 6

    run(main())


def test_a_server_that_comes_back_with_other_weights_is_left_out():
    async def main():
        async with several(2, patience=LONG) as (engine, servers):
            servers[0].hold.clear()
            servers[1].hold.clear()
            runs = [asked(engine, name) for name in "ab"]
            while servers[0].open + servers[1].open < 2:
                await asyncio.sleep(0)
            await servers[0].stop()
            servers[0].engine = TabularEngine(lambda _: [1 / 27] * 27, CODEC)
            for server in servers:
                server.hold.set()
            await servers[0].start()
            for sample in await asyncio.gather(*runs, *(asked(engine, name) for name in "cdef")):
                is_exact(sample)

    run(main())


def test_an_update_that_nobody_takes_and_a_call_that_nobody_answers_are_errors():
    async def main():
        async with several(2, version=3) as (engine, servers):
            for server in servers:
                await server.stop()
            with pytest.raises(EngineError, match="broke while it was to take version 4"):
                await engine.update_weights({"w": torch.zeros(2)}, 4)
            assert engine.version == 3
            with pytest.raises(EngineError, match=r"2 engines, first the server at .* failed 4 times in a row"):
                await asked(engine)

    run(main())


def test_servers_of_different_weights_and_one_named_twice_are_refused():
    async def main():
        async with serving() as one, serving() as other:
            other.engine = TabularEngine(lambda _: [1 / 27] * 27, CODEC)
            with pytest.raises(EngineError, match="serve other weights"):
                await connect(f"{one.address},{other.address}", CODEC)
            with pytest.raises(EngineError, match="each server once"):
                await connect(f"{one.address},{one.address}/v1", CODEC)

    run(main())
