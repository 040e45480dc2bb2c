"""A real HTTP server that speaks the completions protocol in token ids, over any engine, and breaks on demand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web

from rolltree.engine.protocol import Request, Sampling
from rolltree.testing.engine import truncated
from rolltree.testing.tiny import tiny_engine


@dataclass(frozen=True)
class Fault:
    """What becomes of one streamed request."""

    status: int = 0
    """Answer with this instead."""
    after: int = 0
    """So many tokens come first, then:"""
    then: str = ""
    """cut (the connection), hush (say nothing more), abort (as vLLM when requests are aborted), error (an event),
    breathe (comments for ever), empty (events without tokens for ever), flood (a line without end), babble
    (tokens for ever), deep (JSON in JSON), odd (an event that is no object)."""
    headers: dict[str, str] = field(default_factory=dict)


ENDLESS = {
    "breathe": b": ping\n\n" * 4096,
    "empty": b'data: {"choices": [{"text": "", "token_ids": []}]}\n\n' * 512,
    "flood": b"x" * (1 << 16),
    "babble": b'data: {"choices": [{"token_ids": [1], "logprobs": {"token_logprobs": [-1.0]}}]}\n\n',
}
"""What a server sends for ever."""
ODD = {
    "deep": b"data: " + b"[" * 200_000 + b"\n\n",
    "odd": b"data: 7\n\n",
    "list": b'data: ["error"]\n\n',
}


class Server:
    """Serves an engine under /v1; `faults` are used up one per streamed request, in order."""

    def __init__(
        self, make_engine: Callable[[], Any] = tiny_engine, *, distribution: bool = False, most: int = 64
    ) -> None:
        self.make_engine = make_engine
        self.distribution = distribution
        self.most = most
        self.faults: list[Fault] = []
        self.asked: list[dict[str, Any]] = []
        self.open = self.widest = self.hung_up = 0
        self.hold = asyncio.Event()
        self.hold.set()
        self.engine = make_engine()
        self.models = [{"id": "tiny", "max_model_len": 256}]
        self.token_ids = True
        self.list_as: bytes | None = b""
        """What /v1/models answers instead; None = something without end."""
        self._handlers: web.Server | None = None
        self._socket: asyncio.Server | None = None
        self.port = 0
        self.version: int | None = None
        """Of its weights; None = it takes no new ones."""
        self.loaded: list[Path] = []
        """Folders it read weights from."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen, on the port of the last time if there was one."""
        app = web.Application(client_max_size=1 << 26)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_get("/weight_info", self._weights)
        app.router.add_post("/collective_rpc", self._load)
        app.router.add_post("/update_weight_version", self._label)
        runner = web.AppRunner(app, handler_cancellation=True)
        await runner.setup()
        assert runner.server is not None
        self._handlers = runner.server
        self._socket = await asyncio.get_running_loop().create_server(runner.server, "127.0.0.1", self.port)
        self.port = self._socket.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Drop every connection without a word, as a killed server does."""
        if self._socket is not None and self._handlers is not None:
            self._socket.close()
            self._socket = None
            for protocol in list(self._handlers.connections):
                if protocol.transport is not None:
                    protocol.transport.abort()

    async def _models(self, _: web.Request) -> web.Response:
        if self.list_as is None:
            return web.Response(body=_endless(), content_type="application/json")
        return web.Response(body=self.list_as or json.dumps({"data": self.models}).encode())

    async def _weights(self, _: web.Request) -> web.Response:
        if self.version is None:
            return web.json_response({"detail": "Not Found"}, status=404)
        return web.json_response({"weight_version": str(self.version)})

    async def _load(self, request: web.Request) -> web.Response:
        folder = Path((await request.json())["kwargs"]["weights_path"])
        assert list(folder.glob("*.safetensors"))
        self.loaded.append(folder)
        return web.json_response({"results": [None]})

    async def _label(self, request: web.Request) -> web.Response:
        self.version = int((await request.json())["new_version"])
        return web.json_response({"success": True})

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        top = body["logprobs"]
        if top > self.most:
            return _refusal(f"Requested sample logprobs of {top}, which is greater than max allowed: {self.most}")
        if max(body["prompt"]) >= self.engine.codec.vocab_size:
            return _refusal(f"Token id {max(body['prompt'])} is out of vocabulary")
        if not body.get("stream"):
            return web.json_response(await self._at_once(body))
        self.asked.append(body)
        self.open += 1
        self.widest = max(self.widest, self.open)
        try:
            return await self._stream(request, body)
        finally:
            self.open -= 1

    async def _stream(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        fault = self.faults.pop(0) if self.faults else Fault()
        if fault.status:
            return web.json_response({"error": {"message": "later"}}, status=fault.status, headers=fault.headers)
        out = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await out.prepare(request)
        run = self.engine.submit(_asked(body, self.engine.codec.vocab_size))
        try:
            sent = 0
            async for part in run:
                await self.hold.wait()
                for i in range(len(part.actions)):
                    if fault.then and sent == fault.after:
                        return await self._break(request, out, fault)
                    await _send(out, {"choices": [await self._choice(body, part, i)]})
                    sent += 1
            if fault.then:
                return await self._break(request, out, fault)
            end = (await run).finish
            last = {"text": "", "token_ids": [], "finish_reason": "length" if end == "length" else "stop"}
            await _send(out, {"choices": [last]})
            usage = {"prompt_tokens_details": {"cached_tokens": 1}}
            await _send(out, {"choices": [], "usage": usage})
            await out.write(b"data: [DONE]\n\n")
        except (ConnectionError, asyncio.CancelledError):
            self.hung_up += 1
            raise
        finally:
            run.stop()
        return out

    async def _break(self, request: web.Request, out: web.StreamResponse, fault: Fault) -> web.StreamResponse:
        if fault.then == "abort":
            await _send(out, {"choices": [{"text": "", "token_ids": [], "finish_reason": "abort"}]})
        elif fault.then == "error":
            await _send(out, {"error": {"message": "the engine died"}})
        elif fault.then == "hush":
            await asyncio.Event().wait()
        elif fault.then in ENDLESS:
            while True:
                await out.write(ENDLESS[fault.then])
        elif fault.then in ODD:
            await out.write(ODD[fault.then])
        else:
            assert request.transport is not None
            request.transport.abort()
        return out

    async def _choice(self, body: dict[str, Any], part: Any, i: int) -> dict[str, Any]:
        row = part.top.logp[i].astype(np.float64)
        order = part.top.ids[i]
        logp = float(part.logp[i])
        if self.distribution and body["temperature"] > 0:
            row = truncated(row, body["temperature"], max(body["top_k"], 0), body["top_p"])
            logp = float(part.sampling_logprob[i])
        return self._said(int(part.actions[i]), logp, row, order, body["logprobs"])

    def _row(self, prompt: Any, i: int, body: dict[str, Any]) -> dict[str, float]:
        """Alternatives at one place of a prompt, which only a tabular engine shows."""
        if not hasattr(self.engine, "row"):
            return {}
        row = self.engine.row(tuple(prompt[:i].tolist()))
        order = np.argsort(-row, kind="stable")
        said = self._said(int(prompt[i]), float(row[prompt[i]]), row[order], order, body["logprobs"])
        return said["logprobs"]["top_logprobs"][0]

    def _said(self, token: int, logp: float, row: Any, order: Any, count: int) -> dict[str, Any]:
        best = {f"token_id:{token}": max(logp, -9999.0)}
        best |= {f"token_id:{int(j)}": max(float(p), -9999.0) for j, p in list(zip(order, row, strict=True))[:count]}
        said = {"text": "?", "logprobs": {"token_logprobs": [logp], "top_logprobs": [best]}}
        return said | ({"token_ids": [token]} if self.token_ids else {})

    async def _at_once(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt = np.array(body["prompt"], np.int32)
        part = await self.engine.submit(_asked(body, self.engine.codec.vocab_size))
        choice = await self._choice(body, part, 0)
        if body.get("echo"):
            logp = (await self.engine.score(prompt, 1)).logp.tolist()
            here = choice["logprobs"]
            here["token_logprobs"] = [None, *logp, *here["token_logprobs"]]
            here["top_logprobs"] = [None, *(self._row(prompt, i, body) for i in range(1, len(prompt)))]
        return {"choices": [choice]}


def _asked(body: dict[str, Any], vocab: int) -> Request:
    sampling = Sampling(
        max_tokens=body["max_tokens"], temperature=body["temperature"], top_p=body["top_p"],
        top_k=max(body["top_k"], 0), stop_ids=tuple(body.get("stop_token_ids", ())), ignore_eos=body["ignore_eos"],
        seed=body.get("seed"),
    )  # fmt: skip
    return Request(np.array(body["prompt"], np.int32), sampling, frozenset({f"top:{vocab}"}))


def _refusal(message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=400)


async def _send(out: web.StreamResponse, event: dict[str, Any]) -> None:
    await out.write(b"data: " + json.dumps(event).encode() + b"\n\n")


@asynccontextmanager
async def serving(**how: Any) -> AsyncIterator[Server]:
    server = Server(**how)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def _endless() -> AsyncIterator[bytes]:
    while True:
        yield b"[" * (1 << 18)
