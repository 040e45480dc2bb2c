"""When a pool grows and shrinks, and that it does while it works."""

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.cluster import PoolEngine
from rolltree.cluster.elastic import Elastic, parse_engines
from rolltree.cluster.errors import ClusterError
from rolltree.engine.protocol import Request, Sampling
from rolltree.testing.tiny import tiny_engine
from tests.cluster.inprocess import InProcess
from tests.cluster.test_faults import PREFIX, Gate


@pytest.mark.parametrize(("text", "means"), [("", None), ("3", 3), ("2:6", Elastic(2, 6)), ("4:4", Elastic(4, 4))])
def test_engines_are_a_number_or_bounds(text: str, means: Any) -> None:
    assert parse_engines(text) == means


@pytest.mark.parametrize("text", ["2:", ":4", "two", "-1", "2:x", "1:2:3", "0:3", "4:2"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(ClusterError, match="LOW:HIGH"):
        parse_engines(text)


def test_bounds_between_which_it_would_swing_are_refused() -> None:
    with pytest.raises(ClusterError, match="half of high"):
        Elastic(1, 4, high=10, low=6)


rules = st.builds(
    lambda least, more, smallest, unit, whole: Elastic(least, least + more, smallest=smallest, unit=unit, whole=whole),
    st.integers(1, 40), st.integers(0, 80), st.integers(1, 4), st.integers(1, 8), st.booleans(),
)  # fmt: skip


@settings(deadline=None, max_examples=200)
@given(rules, st.integers(0, 120), st.integers(0, 8000))
def test_a_size_stays_between_its_bounds_and_goes_the_way_of_the_load(rule: Elastic, over: int, at_work: int) -> None:
    engines = min(rule.least + over, rule.most)
    wanted = rule.wanted(engines, at_work)
    assert rule.least <= wanted <= rule.most
    if wanted > engines:
        assert at_work > rule.high * engines
        # What it grew to does not shrink at once by the same load.
        assert rule.wanted(wanted, at_work) >= wanted
    if wanted < engines:
        assert at_work < rule.low * engines
    if rule.whole:
        assert (wanted - engines) % rule.unit == 0


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 12), st.integers(0, 12))
def test_under_a_steady_load_every_size_comes_to_its_end(least: int, more: int) -> None:
    rule = Elastic(least, least + more)
    for at_work, end in ((10_000, rule.most), (0, rule.least)):
        engines = rule.least if at_work else rule.most
        for _ in range(40):
            engines = rule.wanted(engines, at_work)
        assert engines == end


def test_a_pool_follows_its_load_and_loses_nothing() -> None:
    gate = Gate(10)
    rule = Elastic(1, 3, high=8, low=2, cool=0, every=0.001)
    asked = [Request(PREFIX, Sampling(max_tokens=60, ignore_eos=True, seed=s), affinity=str(s // 4)) for s in range(40)]

    async def until(pool: PoolEngine, size: int) -> None:
        while pool.health.engines != size:
            await asyncio.sleep(0.001)

    async def main() -> None:
        pool = PoolEngine(gate.engine, 1, InProcess(), latency=0.0005, elastic=rule)
        try:
            async with asyncio.timeout(300):
                runs = list(map(pool.submit, asked))
                await until(pool, 3)
                gate.open = True
                samples = await asyncio.gather(*runs)
                await until(pool, 1)
            alone = tiny_engine()
            for sample, request in zip(samples, asked, strict=True):
                assert np.array_equal(sample.actions, (await alone.submit(request)).actions)
            assert pool.health.lost == pool.health.in_flight == 0
        finally:
            await pool.close()

    asyncio.run(main())
