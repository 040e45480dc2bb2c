"""Alternatives under the policy beside another distribution: asked for, kept in order, and never mixed up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from rolltree.engine.protocol import EngineError, Request, Sampling
from rolltree.engine.segments import SegmentEngine
from rolltree.engine.segments.wire import Piece, Reach, SegmentRead, SegmentRequest
from rolltree.policy.codec import HFCodec
from studies.lab.nano.tokenizer import build_tokenizer

CODEC = HFCodec(build_tokenizer(64))
SHARP = Sampling(max_tokens=5, temperature=0.5, seed=1, ignore_eos=True)


class Told:
    """A backend that reports log-probs of the distribution, and as many of the policy's alternatives as `best`."""

    name = "the backend of the test"
    version = 0

    def __init__(self, best: int) -> None:
        self.reach = Reach(CODEC.vocab_size, 64, 8, of_sampling=True, best=best)
        self.asked: list[SegmentRequest] = []

    async def write(self, ask: SegmentRequest) -> AsyncGenerator[Piece]:
        self.asked.append(ask)
        for start in range(0, ask.most, 2):
            ids = [7 + i for i in range(start, min(start + 2, ask.most))]
            rows = [([i, 40 + i], [-0.1 * i, -1.0]) for i in ids] if ask.best else ()
            yield Piece(ids, [-0.5] * len(ids), rows, finish="length" if start + 2 >= ask.most else "")

    async def read(self, tokens: Sequence[int], start: int, alternatives: int) -> SegmentRead:
        return SegmentRead([-0.25] * (len(tokens) - start))

    async def load(self, weights: Any, version: int) -> None: ...

    async def close(self) -> None: ...


def test_recorded_alternatives_stand_beside_what_was_sampled() -> None:
    backend = Told(best=2)

    async def main() -> Any:
        engine = SegmentEngine(backend, CODEC)
        try:
            return await engine.submit(Request([5, 6], SHARP, frozenset({"top:2"})))
        finally:
            await engine.close()

    sample = asyncio.run(main())
    assert (backend.asked[0].best, backend.asked[0].alternatives) == (2, 0)
    assert sample.actions.tolist() == [7, 8, 9, 10, 11]
    assert sample.top.ids.tolist() == [[i, 40 + i] for i in range(7, 12)]
    assert sample.logp.tolist() == [-0.25] * 5
    assert sample.sampling_logprob.tolist() == [-0.5] * 5


def test_without_a_record_they_are_refused() -> None:
    async def main() -> None:
        engine = SegmentEngine(Told(best=0), CODEC)
        try:
            with pytest.raises(EngineError, match="under the distribution sampled from, not under the policy"):
                engine.submit(Request([5, 6], SHARP, frozenset({"top:2"})))
        finally:
            await engine.close()

    asyncio.run(main())
