"""The gateway over HTTP (aiohttp)."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import itertools
import json
import random
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from rolltree.engine.protocol import Codec, token_codec
from rolltree.errors import RolltreeError
from rolltree.gateway.errors import GatewayError
from rolltree.gateway.gateway import Gateway
from rolltree.gateway.session import OnText, SessionReply
from rolltree.gateway.wire import WIRES
from rolltree.gateway.wire.protocol import Event, WireFormat, Written
from rolltree.generate.garbage import SERVING, rare_collections

if TYPE_CHECKING:
    from aiohttp import web

HEADER = "X-Rolltree-Session"
SWEEP = 5.0
"""Seconds between looks for silent sessions."""
ANSWERS = 6
"""At each so many-th look what was answered in open sessions is written down too."""
LEAVE = 1.0
"""Seconds that calls have to stop when the server ends; what they sampled by then is kept."""


class Server:
    """Answers calls for a gateway. Over anything but loopback every call needs the token."""

    def __init__(self, gateway: Gateway, token: str = "") -> None:
        self.gateway = gateway
        self.token = token
        self.waiting = 0
        self.slots = asyncio.Semaphore(gateway.bounds.concurrent)
        self._answering = set[asyncio.Task[Any]]()
        self._ending = False

    def app(self) -> web.Application:
        """The routes."""
        from aiohttp import web

        app = web.Application(client_max_size=self.gateway.bounds.body_bytes,
                              middlewares=[self._followed(), guarded(self.token)])  # fmt: skip
        for prefix in ("", "/s/{session}"):
            for wire in WIRES:
                app.router.add_post(prefix + wire.path, self._handler(wire))
            app.router.add_get(f"{prefix}/v1/models", self._models)
        app.router.add_post("/sessions", self._open)
        app.router.add_get("/s/{session}", self._status)
        app.router.add_post("/s/{session}/reward", self._reward)
        app.router.add_post("/s/{session}/end", self._end)
        return app

    # -- calls -----------------------------------------------------------------------------------------------------

    def _handler(self, wire: WireFormat) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            from aiohttp import web

            body = await read_body(request)
            ask, draw = wire.read(body, self.gateway.bounds.max_tokens)
            session = self.gateway.session(self._name(request))
            written = written_for(body, self.gateway.model, token_codec(self.gateway.engine, "the gateway"))

            async def call(on_text: OnText | None) -> SessionReply:
                return await session.call(ask, draw, on_text)

            async with self._slot(), _within(self.gateway.bounds.call_seconds):
                if body.get("stream"):
                    return await stream(request, wire, written, call, pieces=draw.n == 1 and not ask.tools)
                reply = await call(None)
            return web.json_response(wire.whole(written, reply), headers={"X-Rolltree-Call": str(reply.call)})

        return handle

    async def _models(self, _: web.Request) -> web.Response:
        from aiohttp import web

        one = {"id": self.gateway.model, "object": "model", "created": 0, "owned_by": "rolltree"}
        one["max_model_len"] = self.gateway.engine.capabilities.max_context
        return web.json_response({"object": "list", "data": [one]})

    # -- sessions --------------------------------------------------------------------------------------------------

    async def _open(self, request: web.Request) -> web.Response:
        from aiohttp import web

        body = await read_body(request)
        name = str(body.get("session") or uuid.uuid4().hex[:12])
        session = self.gateway.open(name, str(body["item"]) if body.get("item") else self.gateway.next_item())
        base = f"{request.scheme}://{request.host}/s/{session.name}/v1"
        item = self.gateway.items.get(session.tree.item)
        told = {"session": name, "item": session.tree.item, "base_url": base}
        return web.json_response(told if item is None else {**told, "prompt": item.prompt})

    async def _status(self, request: web.Request) -> web.Response:
        from aiohttp import web

        session = self.gateway.known(request.match_info["session"])
        calls = [
            {"call": c.number, "prompt": len(c.prompt.ids), "answers": [len(n) for n in c.answers.values()]}
            for c in session.record.calls
        ]
        told = {"session": session.name, "item": session.tree.item, "ended": session.ended or None, "calls": calls}
        return web.json_response({**told, "sampled": session.record.sampled})

    async def _reward(self, request: web.Request) -> web.Response:
        """A reward for one call, or for the session, which it ends."""
        from aiohttp import web

        session, body = self.gateway.known(request.match_info["session"]), await read_body(request)
        reward = number(body, "reward")
        if body.get("call") is not None:
            if type(body["call"]) is not int:
                raise GatewayError(f"call is {body['call']!r}; give the number of a call")
            session.rewarded(reward, body["call"])
        else:
            session.end(reward, "rewarded by the client")
        await self.gateway.keep()
        return web.json_response({"session": session.name, "ended": session.ended or None})

    async def _end(self, request: web.Request) -> web.Response:
        """The end: with a reward, with a final text for the verifier, or as a failure."""
        from aiohttp import web

        session, body = self.gateway.known(request.match_info["session"]), await read_body(request)
        if body.get("final") is not None:
            try:
                verdict = await self.gateway.verified(session, str(body["final"]))
            finally:
                await self.gateway.keep()
            return web.json_response(verdict)
        if body.get("reward") is not None:
            session.end(number(body, "reward"), "rewarded by the client")
        else:
            session.end(None, str(body.get("failed") or "ended without a reward")[:10_000])
        await self.gateway.keep()
        return web.json_response({"session": session.name, "ended": session.ended})

    async def end(self) -> None:
        """Answer nobody any more. Whoever sends half a body or reads slowly is not waited for."""
        self._ending = True
        end = asyncio.get_running_loop().time() + LEAVE
        for task in self._answering:
            task.cancel()
        if self._answering:
            await asyncio.wait(self._answering, timeout=LEAVE)
        if leaving := {task for session in self.gateway.sessions.values() for task in session.leaving}:
            await asyncio.wait(leaving, timeout=max(0.0, end - asyncio.get_running_loop().time()))

    # -- inside ----------------------------------------------------------------------------------------------------

    def _followed(self) -> Any:
        """Knows what is being answered, so that it can be ended."""
        from aiohttp import web

        @web.middleware
        async def follow(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Any:
            if self._ending:
                return web.json_response(_error(GatewayError("the server is ending", 503))[1], status=503)
            if (task := asyncio.current_task()) is None:
                return await handler(request)
            self._answering.add(task)
            try:
                return await handler(request)
            finally:
                self._answering.discard(task)

        return follow

    def _name(self, request: web.Request) -> str:
        """The session of a call: from its path, a header, or what stands behind ":" in its key."""
        in_key = _key(request).partition(":")[2]
        return request.match_info.get("session") or request.headers.get(HEADER) or in_key or "default"

    @asynccontextmanager
    async def _slot(self) -> AsyncGenerator[None]:
        if self.waiting >= self.gateway.bounds.waiting:
            raise GatewayError(f"{self.waiting} calls are waiting already; call again later", 429)
        self.waiting += 1
        try:
            await self.slots.acquire()
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self.slots.release()


@asynccontextmanager
async def serving(
    gateway: Gateway, host: str = "127.0.0.1", port: int = 0, token: str = ""
) -> AsyncGenerator[tuple[str, Server]]:
    """Serve a gateway while the block runs; gives its address. Port 0 takes a free one."""
    from aiohttp import web

    if not token and not loopback(host):
        raise GatewayError(f"{host} can be reached from other machines, so clients must show a token; give one")
    server = Server(gateway, token)
    # What a client still sends or reads is waited for twice as long as `shutdown_timeout` at the end.
    runner = web.AppRunner(server.app(), handler_cancellation=True, access_log=None, shutdown_timeout=LEAVE / 2)
    await runner.setup()
    sweeper = asyncio.create_task(_sweep(gateway))
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise GatewayError(f"cannot listen on {host}:{port}: {error.strerror}; choose another port") from None
        taken = runner.addresses[0][1]
        with rare_collections(SERVING):
            yield f"http://{f'[{host}]' if ':' in host else host}:{taken}", server
    finally:
        sweeper.cancel()
        with suppress(asyncio.CancelledError):
            await sweeper
        for site in list(runner.sites):
            await site.stop()
        await server.end()
        gateway.close()
        await gateway.keep()
        await runner.cleanup()


async def _sweep(gateway: Gateway) -> None:
    for look in itertools.count(1):
        await asyncio.sleep(SWEEP)
        gateway.expire()
        await gateway.keep(answers=look % ANSWERS == 0)


def written_for(body: dict[str, Any], model: str, codec: Codec) -> Written:
    """What the answer to a body is written from."""
    named = body.get("model")
    id = f"{random.getrandbits(128):032x}"  # no secret, and the system's own source of chance is slow to ask
    return Written(id, named if isinstance(named, str) else model, int(time.time()), body, codec)


async def stream(
    request: web.Request, wire: WireFormat, written: Written,
    call: Callable[[OnText | None], Awaitable[SessionReply]], *, pieces: bool,
) -> web.StreamResponse:  # fmt: skip
    """An answer as server-sent events. Until the first token nothing is sent, so a refusal is still a status."""
    from aiohttp import web

    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    begun = False

    async def send(events: Any) -> None:
        nonlocal begun
        if not begun:
            begun = True
            await response.prepare(request)
            await send(wire.begin(written))
        for event in events:
            await response.write(_event(event))

    told = False

    async def on_text(text: str) -> None:
        nonlocal told
        told = True
        await send(wire.text(written, text))

    try:
        reply = await call(on_text if pieces else None)
    except Exception as error:
        if not begun:
            raise
        await response.write(_event(("error", _error(error)[1])))  # the stream has begun: the status is out
        return response
    await send(wire.finish(written, reply, told))
    if wire.done:
        await response.write(f"data: {wire.done}\n\n".encode())
    await response.write_eof()
    return response


def guarded(token: str) -> Any:
    """Every refusal is one sentence in the form that clients read; what breaks is our error, not theirs."""
    from aiohttp import web

    @web.middleware
    async def guard(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Any:
        if token and not hmac.compare_digest(_key(request).partition(":")[0].encode(), token.encode()):
            return web.json_response(_error(GatewayError("the key is not the gateway's token", 401))[1], status=401)
        try:
            return await handler(request)
        except web.HTTPException as error:
            return web.json_response({"error": {"message": error.reason, "type": "invalid_request_error"}},
                                     status=error.status)  # fmt: skip
        except Exception as error:
            status, body = _error(error)
            return web.json_response(body, status=status)

    return guard


def _error(error: Exception) -> tuple[int, dict[str, Any]]:
    status = error.status if isinstance(error, GatewayError) else 500
    said = str(error) if isinstance(error, RolltreeError) else f"{type(error).__name__}: {error}"
    kind = "invalid_request_error" if status < 500 else "server_error"
    return status, {"type": "error", "error": {"message": said, "type": kind, "code": None, "param": None}}


def _event(event: Event) -> bytes:
    name, data = event
    return (f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(data).encode() + b"\n\n"


async def read_body(request: web.Request) -> dict[str, Any]:
    """The JSON object of a body."""
    raw = await request.read()
    try:
        told = json.loads(raw.decode() or "{}")
        if b"\\ud" in raw or b"\\uD" in raw:  # half a character may be written as an escape
            json.dumps(told, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise GatewayError(f"the body is not JSON in UTF-8: {type(error).__name__}: {str(error)[:200]}") from None
    if not isinstance(told, dict):
        raise GatewayError("the body is no JSON object")
    return cast(dict[str, Any], told)


def number(body: dict[str, Any], name: str) -> float:
    """A finite number of a body."""
    told = body.get(name)
    if isinstance(told, bool) or not isinstance(told, int | float) or not abs(told) < 1e12:
        raise GatewayError(f"{name} is {told!r}; give a finite number")
    return float(told)


def _key(request: web.Request) -> str:
    bearer = request.headers.get("Authorization", "")
    return bearer.removeprefix("Bearer ").strip() if bearer else request.headers.get("x-api-key", "")


def loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


@asynccontextmanager
async def _within(seconds: float) -> AsyncGenerator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise GatewayError(f"the call took longer than {seconds:g} s and was stopped", 504) from None
