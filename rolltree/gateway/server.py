"""The gateway over HTTP (aiohttp)."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from rolltree.engine.protocol import Codec, token_codec
from rolltree.gateway.errors import GatewayError
from rolltree.gateway.gateway import Gateway
from rolltree.gateway.request import beside, error_body, guarded, key_of, number, read_body, refusal, text
from rolltree.gateway.session import OnText, SessionReply
from rolltree.gateway.wire import WIRES, understood
from rolltree.gateway.wire.protocol import Event, WireFormat, Written
from rolltree.generate.runner import SERVING, rare_collections
from rolltree.origins import is_loopback

if TYPE_CHECKING:
    from aiohttp import web

HEADER = "X-Rolltree-Session"
SWEEP = 5.0
"""Seconds between looks for silent sessions."""
CHARACTERS = 32
"""What decoding one token by itself costs, in characters of a body that is read."""
ANSWERS = 6
"""At each so many-th look what was answered in open sessions is written down too."""
LEAVE = 1.0
"""Seconds that calls have to stop when the server ends; what they sampled by then is kept."""


class Server:
    """Answers calls for a gateway. Over anything but loopback every call needs the token."""

    def __init__(self, gateway: Gateway, token: str = "", *, local: bool = True) -> None:
        self.gateway = gateway
        self.token, self.local = token, local
        self.waiting = 0
        self.slots = asyncio.Semaphore(gateway.bounds.concurrent)
        self._answering = set[asyncio.Task[Any]]()
        self._ending = False

    def app(self) -> web.Application:
        """The routes."""
        from aiohttp import web

        guard = guarded(self.token, local=self.local)
        app = web.Application(
            client_max_size=self.gateway.bounds.body_bytes, middlewares=[self._followed(), guard]
        )  # fmt: skip
        app.router.add_get("/health", _health)
        for prefix in ("", "/s/{session}"):
            for wire in WIRES:
                app.router.add_post(prefix + wire.path, self._handler(wire))
            app.router.add_get(f"{prefix}/v1/models", self._models)
            app.router.add_get(f"{prefix}/v1/models/{{model:.+}}", self._model)
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
            size = len(await request.read())
            gateway = self.gateway
            body, ask, draw = await beside(
                lambda: understood(wire, body, gateway.bounds.max_tokens, gateway.ignored), size
            )
            gateway.asked_for(body.get("model"))
            session = gateway.session(self._name(request))
            written = written_for(body, gateway.model, token_codec(gateway.engine, "the gateway"))

            async def call(on_text: OnText | None) -> SessionReply:
                return await session.call(ask, draw, on_text)

            async with self._slot(), _within(self.gateway.bounds.call_seconds):
                if body.get("stream"):
                    return await stream(request, wire, written, call, pieces=draw.n == 1 and not ask.tools)
                reply = await call(None)
            told = await beside(lambda: json.dumps(wire.whole(written, reply)), written_tokens(written, reply))
            return web.json_response(text=told, headers={"X-Rolltree-Call": str(reply.call)})

        return handle

    async def _models(self, _: web.Request) -> web.Response:
        from aiohttp import web

        return web.json_response({"object": "list", "data": [self._about(name) for name in self.gateway.names]})

    async def _model(self, request: web.Request) -> web.Response:
        from aiohttp import web

        name = request.match_info["model"]
        self.gateway.asked_for(name)
        return web.json_response(self._about(name))

    def _about(self, name: str) -> dict[str, Any]:
        one = {"id": name, "object": "model", "created": 0, "owned_by": "rolltree"}
        return {**one, "max_model_len": self.gateway.engine.capabilities.max_context}

    # -- sessions --------------------------------------------------------------------------------------------------

    async def _open(self, request: web.Request) -> web.Response:
        from aiohttp import web

        body = await read_body(request)
        name = text(body, "session") or uuid.uuid4().hex[:12]
        session = self.gateway.open(name, text(body, "item") or self.gateway.next_item())
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
                raise GatewayError(f"call is {body['call']!r:.80}; give the number of a call")
            session.rewarded(reward, body["call"])
        else:
            session.end(reward, "rewarded by the client")
        await self.gateway.keep()
        return web.json_response({"session": session.name, "ended": session.ended or None})

    async def _end(self, request: web.Request) -> web.Response:
        """The end: with a reward, with a final text for the verifier, or as a failure."""
        from aiohttp import web

        session, body = self.gateway.known(request.match_info["session"]), await read_body(request)
        if (final := text(body, "final")) is not None:
            try:
                verdict = await self.gateway.verified(session, final)
            finally:
                await self.gateway.keep()
            return web.json_response(verdict)
        if body.get("reward") is not None:
            session.end(number(body, "reward"), "rewarded by the client")
        else:
            session.end(None, (text(body, "failed") or "ended without a reward")[:10_000])
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
                return refusal(GatewayError("the server is ending", 503))
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
        in_key = key_of(request).partition(":")[2]
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

    from rolltree.gateway.malformed import Runner

    local = is_loopback(host)
    if not token and not local:
        raise GatewayError(f"{host} can be reached from other machines, so clients must show a token; give one")
    server = Server(gateway, token, local=local)
    # What a client still sends or reads is waited for twice as long as `shutdown_timeout` at the end.
    runner = Runner(server.app(), handler_cancellation=True, access_log=None, shutdown_timeout=LEAVE / 2)
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
        await response.write(_event(("error", error_body(error)[1])))  # the stream has begun: the status is out
        return response
    await send(await beside(lambda: list(wire.finish(written, reply, told)), written_tokens(written, reply)))
    if wire.done:
        await response.write(f"data: {wire.done}\n\n".encode())
    await response.write_eof()
    return response


def written_tokens(written: Written, reply: SessionReply) -> int:
    """How many tokens an answer is written from, each with its alternatives: these are decoded one by one."""
    if not written.body.get("logprobs"):
        return 0
    return sum(len(one.actions) * (1 + (one.top.ids.shape[1] if one.top else 0)) for one in reply.samples) * CHARACTERS


async def _health(_: web.Request) -> web.Response:
    from aiohttp import web

    return web.json_response({"status": "ok"})


def _event(event: Event) -> bytes:
    name, data = event
    return (f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(data).encode() + b"\n\n"


@asynccontextmanager
async def _within(seconds: float) -> AsyncGenerator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise GatewayError(f"the call took longer than {seconds:g} s and was stopped", 504) from None
