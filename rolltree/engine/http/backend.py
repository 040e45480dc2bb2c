"""A served policy as a backend: writes by streamed completions, reads by echo, updates where the server allows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from rolltree.engine.http.client import Client, GoneError
from rolltree.engine.http.completions import PATH, body_of, brings_tokens, piece_of, read_of, reading_of, room_for
from rolltree.engine.protocol import EngineError
from rolltree.engine.segments.weights import handed_over
from rolltree.engine.segments.wire import Piece, Reach, SegmentRead, SegmentRequest, StaleWeightsError

SAME = 0.05
"""Largest difference in log-prob between two readings of the same text by the same weights."""


@dataclass(frozen=True, slots=True)
class Served:
    """What a server serves, as found when it was connected to."""

    model: str
    reach: Reach
    probe: tuple[int, ...]
    """Some text."""
    reading: tuple[float, ...]
    """Its log-probs there; a server that comes back with others has other weights."""


class HttpBackend:
    """A model on a server (see `rolltree.engine.segments.Backend`)."""

    def __init__(self, client: Client, served: Served, version: int) -> None:
        self.name = f"the server at {client.address}"
        self.reach = served.reach
        self.version = version
        self._client = client
        self._served = served
        self._doubt = False
        self._looking = asyncio.Lock()

    async def write(self, ask: SegmentRequest) -> AsyncGenerator[Piece]:
        """Stream one completion; hanging up ends it at the server."""
        await self._same_as_before()
        body = body_of(self._served.model, ask, salted=self.reach.updates)
        first, came = len(ask.tokens), 0
        try:
            most = room_for(ask.most, ask.alternatives)
            async with aclosing(self._client.stream(PATH, body, most=most, counts=brings_tokens)) as events:
                async for event in events:
                    piece = piece_of(event, ask.alternatives)
                    if piece.ids and first:
                        yield Piece((), (), prefilled=first)
                        first = 0
                    came += len(piece.ids)
                    if came > ask.most:
                        return  # it has lost count, and nobody knows when it would end
                    yield piece
        except GoneError:
            self._doubt = True
            raise

    async def read(self, tokens: Sequence[int], start: int, alternatives: int) -> SegmentRead:
        """Echo the tokens with their log-probs."""
        await self._same_as_before()
        try:
            most = room_for(len(tokens) + 1, alternatives)
            answer = await self._client.post(PATH, reading_of(self._served.model, tokens, alternatives), most=most)
        except GoneError:
            self._doubt = True
            raise
        return read_of(answer, tokens, start, alternatives)

    async def load(self, weights: Any, version: int) -> None:
        """Let the server's workers read the weights from a folder both can see, in place."""
        with handed_over(weights) as folder:
            order = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
            await self._client.post("/collective_rpc", order)
        await self._client.post("/update_weight_version", {"new_version": str(version)})
        said = await told_version(self._client)
        if said != version:
            raise EngineError(f"{self.name} reports weight version {said} after an update to {version}")
        self.version = version
        self._served = await renewed(self._client, self._served)

    def check_same_weights(self, other: HttpBackend) -> None:
        """Raise if another server reads the same text with other log-probs."""
        gap = _gap(self._served, other._served)
        if not gap <= SAME:
            raise EngineError(
                f"{self.name} and {other.name} serve other weights: log-probs of the same text differ by up to "
                f"{gap:.3g}; serve the same model everywhere"
            )

    async def close(self) -> None:
        """Close the connections; the server goes on."""
        await self._client.close()

    async def _same_as_before(self) -> None:
        """After a break, make sure that what answers now has the same weights."""
        if not self._doubt:
            return
        async with self._looking:
            if not self._doubt:
                return
            now = await renewed(self._client, self._served)
            gap = _gap(now, self._served)
            if not gap <= SAME:
                raise StaleWeightsError(
                    f"{self.name} came back with other weights: log-probs of the same text moved by up to {gap:.3g}; "
                    "serve the weights the run began with"
                )
            self._doubt = False


def _gap(one: Served, other: Served) -> float:
    """Largest difference between two readings of the same text; 0 where servers cannot read."""
    return max((abs(a - b) for a, b in zip(one.reading, other.reading, strict=True)), default=0.0)


async def renewed(client: Client, served: Served) -> Served:
    """The same server, its probe read again (nothing where it cannot score)."""
    if not served.reach.scores:
        return served
    answer = await client.post(PATH, reading_of(served.model, served.probe, 0))
    reading = read_of(answer, served.probe, 1, 0).logp
    return Served(served.model, served.reach, served.probe, tuple(reading))


async def told_version(client: Client) -> int | None:
    """The weight version by the server's own word; None where it has no such word."""
    told = await client.get("/weight_info")
    word = str((told or {}).get("weight_version", ""))
    return int(word) if word.isdigit() else None
