"""One HTTP request: who may send it, what its body may hold, and how a refusal reads.

A web page can make its reader's browser send requests to a local port. Such a page cannot name this machine as host,
cannot hide its origin, and cannot send JSON without being asked first. So requests of another host or origin and bodies
that are not JSON are refused, before anything is read.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rolltree.errors import RolltreeError
from rolltree.gateway.errors import GatewayError
from rolltree.origins import foreign, same
from rolltree.visible import shortened, visible

if TYPE_CHECKING:
    from aiohttp import web

LOG = logging.getLogger("rolltree.gateway")
SMALL = 32 * 2**10
"""Bytes, characters or tokens of a call that the event loop reads and writes itself; more is left to a thread."""
BRACKETS, COMMAS = 100_000, 1_000_000
"""Most of each in a body. Memory and time of reading JSON go with its objects and lists, not with its bytes."""
NESTED = 64
"""Objects and lists within each other, at most."""
OPEN = ("/health",)
"""What answers without a token: it tells nothing of sessions."""
T = TypeVar("T")

_heavy = ThreadPoolExecutor(1, "rolltree-gateway")
"""One thread: however many large calls come, the loop that answers all others has at least half of the time."""


async def beside(work: Callable[[], T], size: int) -> T:
    """Do what takes long beside the event loop, and what is small at once."""
    if size <= SMALL:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_heavy, work)


def guarded(token: str, *, local: bool = True) -> Any:
    """What stands before every handler. Every refusal is one sentence in the form that clients read; what breaks is our
    error, not theirs. `local` says that only this machine can reach the server."""
    from aiohttp import web

    @web.middleware
    async def guard(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Any:
        try:
            _admit(request, token, local)
            return await handler(request)
        except web.HTTPException as error:
            return refusal(GatewayError(_said(request, error), error.status))
        except Exception as error:
            return refusal(error)

    return guard


def _admit(request: web.Request, token: str, local: bool) -> None:
    if why := foreign(request.headers, local, "this server"):
        raise GatewayError(why, 403)
    if token and request.path not in OPEN and not same(key_of(request).partition(":")[0], token):
        raise GatewayError("the key is not the gateway's token", 401)


def refusal(error: Exception) -> web.Response:
    """An error as the answer to a call."""
    from aiohttp import web

    status, body = error_body(error)
    return web.json_response(body, status=status)


def error_body(error: Exception) -> tuple[int, dict[str, Any]]:
    """The status and the body of a refusal, as clients of OpenAI and of Anthropic read it."""
    known = error if isinstance(error, GatewayError) else GatewayError(str(error), 500)
    said = str(error) if isinstance(error, RolltreeError) else f"{type(error).__name__}: {error}"
    kind = "invalid_request_error" if known.status < 500 else "server_error"
    told = {"message": said, "type": kind, "code": known.code, "param": known.param}
    return known.status, {"type": "error", "error": told}


async def read_body(request: web.Request) -> dict[str, Any]:
    """The JSON object of a body; an empty body is an empty object."""
    check_encoding(request)
    raw = await _received(request)
    if not raw and "Content-Encoding" in request.headers:  # cut off before its first byte, it would be an empty object
        raise GatewayError("the body is empty once it is read as its Content-Encoding says; send all of it")
    if not raw and "Content-Type" not in request.headers:
        return {}
    if request.content_type != "application/json":
        kind = request.headers.get("Content-Type", "")
        said = f"of type {kind[:80]!r}" if kind else "of no type"
        raise GatewayError(f"the body is {said}; send JSON with the header Content-Type: application/json", 415)
    if (request.charset or "utf-8").lower() not in ("utf-8", "utf8", "us-ascii", "ascii"):
        raise GatewayError(f"the body is in {request.charset[:40]!r}; send JSON in UTF-8", 415)  # type: ignore[index]
    return await beside(lambda: _read(raw), len(raw))


def check_encoding(request: web.Request) -> None:
    """Refuse a compression that is not undone here; a body would be taken for what it is not."""
    named = request.headers.get("Content-Encoding", "identity").lower()
    if named not in ("identity", "gzip", "deflate", "br", "zstd"):
        raise GatewayError(f"Content-Encoding {named[:40]!r} is not read; send the body as it is, or as gzip", 415)


async def _received(request: web.Request) -> bytes:
    from aiohttp import web
    from aiohttp.http_exceptions import HttpProcessingError

    try:
        return await request.read()
    except (web.RequestPayloadError, HttpProcessingError) as error:
        why = f"the body cannot be read: {first_line(error)}"
        malformed(request.remote, why)
        raise GatewayError(why) from None


def malformed(remote: str | None, why: str) -> None:
    """One line in the log for a request that is none."""
    LOG.warning("a malformed request of %s was refused: %s", remote, shortened(visible(why), 300))


def first_line(error: BaseException) -> str:
    """What aiohttp says of a request in one line: without the status before it and the picture of it behind."""
    said = str(getattr(error, "message", "") or error).removeprefix("400, message:")
    lines = [line.strip() for line in said.strip().splitlines() if line.strip()]
    told = " ".join(lines[:2] if lines and lines[0].endswith(":") and len(lines) > 1 else lines[:1])
    return shortened(told or type(error).__name__, 200).rstrip(".:")


def _read(raw: bytes) -> dict[str, Any]:
    brackets, commas = raw.count(b"{") + raw.count(b"["), raw.count(b",")
    for found, most, what in ((brackets, BRACKETS, "brackets"), (commas, COMMAS, "commas")):
        if found > most:
            raise GatewayError(f"the body has {found:,} {what}, and at most {most:,} are read; send less in one call")
    try:
        told = json.loads(raw.decode() or "{}")
        if b"\\ud" in raw or b"\\uD" in raw:  # half a character may be written as an escape
            json.dumps(told, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise GatewayError(f"the body is not JSON in UTF-8: {type(error).__name__}: {str(error)[:200]}") from None
    if not isinstance(told, dict):
        raise GatewayError("the body is no JSON object")
    if _deeper(told, NESTED):
        raise GatewayError(f"the body has more than {NESTED} objects and lists within each other; send a flatter one")
    return cast(dict[str, Any], told)


def _deeper(told: Any, most: int) -> bool:
    """Whether objects and lists stand in each other more than `most` deep."""
    level: list[Any] = [told]
    for _ in range(most):
        level = [
            below
            for one in level
            for below in (cast(dict[str, Any], one).values() if isinstance(one, dict) else one)
            if isinstance(below, dict | list)
        ]
        if not level:
            return False
    return True


def number(body: dict[str, Any], name: str) -> float:
    """A finite number of a body."""
    told = body.get(name)
    if isinstance(told, bool) or not isinstance(told, int | float) or not abs(told) < 1e12:
        raise GatewayError(f"{name} is {shortened(repr(told), 80)}; give a finite number", param=name)
    return float(told)


def text(body: dict[str, Any], name: str) -> str | None:
    """A text of a body; None where it has none."""
    told = body.get(name)
    if told is not None and not isinstance(told, str):
        raise GatewayError(f"{name} is {shortened(repr(told), 80)}; give a text", param=name)
    return told


def key_of(request: web.Request) -> str:
    """What a client shows as its key."""
    bearer = request.headers.get("Authorization", "")
    return bearer.removeprefix("Bearer ").strip() if bearer else request.headers.get("x-api-key", "")


def _said(request: web.Request, error: web.HTTPException) -> str:
    """What aiohttp refuses, in a sentence."""
    path = shortened(visible(request.path), 100)
    if error.status == 404:
        return f"there is nothing at {path}; GET /health, /v1/models and docs/howto/agents.md say what is served"
    if error.status == 405:
        allowed = error.headers.get("Allow", "another method")
        return f"{path} does not take {shortened(request.method, 20)}; it takes {allowed}"
    if error.status == 413:
        most = request.client_max_size
        return f"the body is larger than the {most:,} bytes that are read; send less in one call"
    return f"{error.reason}"
