"""Talks to one server: bounded in flight, with time-outs, and with failures sorted into passing and final."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rolltree.engine.protocol import EngineError
from rolltree.engine.segments.wire import BrokenError
from rolltree.tree.store.values import read_json

if TYPE_CHECKING:
    import aiohttp

PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers that may be different the next time."""
BUSY = frozenset({429, 503})
"""Answers of a server that lives and has too much to do."""


@dataclass(frozen=True, slots=True)
class Wire:
    """How to talk to a server."""

    in_flight: int = 256
    """Most requests sent at once; the others wait here, not in the server's queue."""
    connect_seconds: float = 10.0
    """Longest wait for a connection."""
    silence_seconds: float = 120.0
    """Longest wait for the next byte of an answer, and for the next token of a streamed one, whatever else comes."""
    answer_seconds: float = 600.0
    """Longest time an answer that is not streamed may take."""
    key: str = ""
    """Sent as a bearer token, if given."""


LONGEST_WAIT = 600.0
"""Most seconds that a busy server is left alone, whatever it asks for."""
ANSWER = 1 << 24
"""Most bytes of an answer whose size is not known beforehand."""
IDLE = 2.0
"""Seconds after which a connection that nobody used is not used again: the servers (uvicorn) hang up after five, and a
request sent in that moment would be lost, an update of the weights among them."""


class GoneError(BrokenError):
    """The connection broke: what answers next may be another server."""


class Client:
    """One server at an address like http://host:port."""

    def __init__(self, address: str, wire: Wire) -> None:
        self.address = address.rstrip("/")
        self._wire = wire
        self._places = asyncio.Semaphore(wire.in_flight)
        self._session: aiohttp.ClientSession | None = None

    async def get(self, path: str) -> Any:
        """The JSON at a path; None where the server has no such path."""
        async with self._places, self._answer("GET", path, None) as answer:
            if answer.status in (404, 405):
                return None
            return await self._json(answer, ANSWER)

    async def post(self, path: str, body: Any, *, most: int = ANSWER) -> Any:
        """The JSON that answers a request, of at most so many bytes."""
        async with self._places, self._answer("POST", path, body) as answer:
            return await self._json(answer, most)

    async def stream(self, path: str, body: Any, *, most: int, counts: Callable[[Any], bool]) -> AsyncGenerator[Any]:
        """The JSON events of a streamed answer; closing the generator hangs up, which ends the request.

        A server that goes on for ever is hung up on: after `most` bytes, and where no event that counts has come for as
        long as it may be silent.
        """
        silence, loop = self._wire.silence_seconds, asyncio.get_running_loop()
        async with self._places, self._answer("POST", path, body) as answer:
            if answer.status >= 400:
                await self._json(answer, ANSWER)
            lines, deadline = _lines(answer.content.iter_any(), most), loop.time() + silence
            while True:
                try:
                    async with asyncio.timeout_at(deadline):
                        line = await anext(lines)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    raise GoneError(f"it sent no token for {silence:g} s") from None
                if not line.startswith(b"data:"):
                    continue
                data = line[5:].strip()
                if data == b"[DONE]":
                    return
                event = _decoded(data)
                if not isinstance(event, dict):
                    raise GoneError(f"it sent an event that is no object ({data[:80]!r})")
                if "error" in event:
                    raise BrokenError(f"it sent an error: {_message(event)}")
                yield event  # pyright: ignore[reportUnknownVariableType]
                if counts(event):
                    deadline = loop.time() + silence

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def _answer(self, method: str, path: str, body: Any) -> AsyncGenerator[aiohttp.ClientResponse]:
        import aiohttp

        headers = {"Authorization": f"Bearer {self._wire.key}"} if self._wire.key else {}
        try:
            async with self._opened().request(method, self.address + path, json=body, headers=headers) as answer:
                yield answer
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise GoneError(f"{type(error).__name__}{f': {error}' if str(error) else ''}") from error

    def _opened(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            # The number of connections is bounded by the places, and no answer is too long.
            timeout = aiohttp.ClientTimeout(
                None, sock_connect=self._wire.connect_seconds, sock_read=self._wire.silence_seconds
            )
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE)
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        return self._session

    async def _json(self, answer: aiohttp.ClientResponse, most: int) -> Any:
        raw = bytearray()
        async with asyncio.timeout(self._wire.answer_seconds):
            async for chunk in answer.content.iter_any():
                raw += chunk
                if len(raw) > most:
                    raise GoneError(f"its answer is longer than the {most:,} bytes it may have")
        if answer.status < 400:
            return _decoded(raw)
        said = _said(raw)
        if answer.status in PASSING:
            kind = BrokenError if answer.status in BUSY else GoneError
            raise kind(f"it answered {answer.status}: {said}", _wait_asked(answer.headers.get("Retry-After")))
        raise EngineError(f"the server at {self.address} refused a request ({answer.status}): {said}")


async def _lines(chunks: AsyncIterator[bytes], most: int) -> AsyncGenerator[bytes]:
    """Whole lines, however long, of `most` bytes together; rows of log-probs can exceed any reader's limit."""
    rest, seen = bytearray(), 0
    async for chunk in chunks:
        seen += len(chunk)
        if seen > most:
            raise GoneError(f"it sent more than the {most:,} bytes that its answer may have")
        *whole, last = chunk.split(b"\n")
        for line in whole:
            rest += line
            yield bytes(rest.rstrip(b"\r"))
            rest.clear()
        rest += last


def _decoded(raw: bytes | bytearray) -> Any:
    try:
        return read_json(bytes(raw)) if raw else {}
    except ValueError as error:
        raise GoneError(f"its answer is no JSON ({bytes(raw[:80])!r})") from error


def _said(raw: bytes | bytearray) -> str:
    try:
        return _message(read_json(bytes(raw)))
    except ValueError:
        return raw[:200].decode("utf-8", "replace")


def _message(event: Any) -> str:
    inner = event.get("error", event) if isinstance(event, dict) else event
    return str(inner.get("message", inner) if isinstance(inner, dict) else inner)[:300]


def _wait_asked(header: str | None) -> float:
    """Seconds a busy server asks for; a date instead of a number is left to our own patience."""
    try:
        asked = float(header) if header else 0.0
    except ValueError:
        return 0.0
    return min(max(0.0, asked), LONGEST_WAIT) if math.isfinite(asked) else 0.0
