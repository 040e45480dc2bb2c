"""The check of the benchmark of shrinks: what rounding explains passes, and a fault of the pool does not."""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rolltree.cluster import Health, jobs
from rolltree.engine.local import LocalEngine
from rolltree.engine.local import prefix_blocks as handover
from rolltree.engine.protocol import Request, Sample
from tests.cluster.test_handover import asked, at_first, in_pool, paced, shrunk, truth
from tests.engine import tiny

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "drawn.py"


@pytest.fixture(scope="module")
def drawn() -> Any:
    spec = importlib.util.spec_from_file_location("drawn", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["drawn"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["drawn"]


@pytest.fixture(scope="module")
def exact(drawn: Any) -> Any:
    return drawn.doubled(copy.deepcopy(tiny.llama()))


Plant = Callable[[pytest.MonkeyPatch], Callable[[], LocalEngine]]


def none(monkeypatch: pytest.MonkeyPatch) -> Callable[[], LocalEngine]:
    return at_first(2)


def next_draw(monkeypatch: pytest.MonkeyPatch) -> Callable[[], LocalEngine]:
    """What goes on elsewhere passes one number of its stream over."""
    right = jobs.continuation

    def wrong(request: Request, made: Any, *, offset: bool) -> Request:
        rest = right(request, made, offset=offset)
        moved = replace(rest.sampling, offset=rest.sampling.offset + bool(len(made)))
        return replace(rest, sampling=moved)

    monkeypatch.setattr(jobs, "continuation", wrong)
    return at_first(2)


def other_blocks(monkeypatch: pytest.MonkeyPatch) -> Callable[[], LocalEngine]:
    """Keys and values arrive one block further on."""
    right = handover.put

    def wrong(cache: Any, decoder: Any, blocks: handover.PrefixBlocks, rows: Any) -> int:
        layers = tuple((np.roll(keys, 1, 0), np.roll(values, 1, 0)) for keys, values in blocks.layers)
        return right(cache, decoder, replace(blocks, layers=layers), rows)

    monkeypatch.setattr(handover, "put", wrong)
    return at_first(2)


def other_weights(monkeypatch: pytest.MonkeyPatch) -> Callable[[], LocalEngine]:
    """Of two engines one has not followed the other."""
    models = iter([tiny.llama(), tiny.llama(1)])
    return lambda: paced(next(models))


def pooled(make: Callable[[], LocalEngine]) -> tuple[list[Sample], Health]:
    samples, health = in_pool(shrunk, make=make)
    assert health.moved > 0
    return samples, health


def test_samples_of_a_pool_that_shrank_pass(drawn: Any, exact: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    samples, health = pooled(none(monkeypatch))
    assert health.handed_tokens > 0
    found = drawn.check(exact, asked(), samples)
    assert found.tokens == 16 * 40
    assert found.worst_outside <= found.worst_off < 1e-5


@pytest.mark.parametrize(
    ("plant", "why"), [(next_draw, "a draw is"), (other_blocks, "a log-prob is"), (other_weights, "a log-prob is")]
)
def test_a_fault_of_the_pool_fails(
    plant: Plant, why: str, drawn: Any, exact: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, _ = pooled(plant(monkeypatch))
    with pytest.raises(RuntimeError, match=why):
        drawn.check(exact, asked(), samples)


@pytest.mark.parametrize(("away", "passes"), [(1e-6, True), (1e-2, False)])
def test_the_neighbouring_token_passes_only_within_rounding(
    away: float, passes: bool, drawn: Any, exact: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, sample = asked(1)[0], truth()[0]
    law = np.exp(drawn._laws(exact, request.prefix, [sample.actions])[0][0])
    token = int(law.argmax())
    boundary = law[: token + 1].sum()
    found = dict[int, bool]()
    for draw, written in ((boundary - away, token + 1), (boundary + away, token)):
        one = replace(
            sample, actions=np.array([written]), logp=np.log(law[[written]]), version=sample.version[:1],
            sampling_logprob=sample.sampling_logprob[:1],
        )  # fmt: skip
        monkeypatch.setattr(drawn, "uniforms", lambda keys, at, draw=draw: np.full(len(at), draw))
        judged = drawn.judged(exact, [request], [one])
        assert judged[0].outside[0] == pytest.approx(away, rel=1e-3)
        found[written] = not drawn.verdict(judged).wrong
    assert set(found.values()) == {passes}
