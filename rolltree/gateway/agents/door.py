"""The door agents knock at: calls come in by HTTP, wait, and are answered by the rollout they belong to."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rolltree.engine.protocol import Codec, Sample
from rolltree.engine.samples import nothing
from rolltree.gateway.agents.letters import Characters
from rolltree.gateway.answer import CallAnswer
from rolltree.gateway.ask import Ask
from rolltree.gateway.contexts import ContextPrompt
from rolltree.gateway.errors import GatewayError
from rolltree.gateway.request import beside, guarded, number, read_body
from rolltree.gateway.server import stream, written_for
from rolltree.gateway.session import Draw, OnText, SessionReply
from rolltree.gateway.wire import WIRES, WireFormat, understood
from rolltree.policy.codec import HFCodec

if TYPE_CHECKING:
    from aiohttp import web

NO_MORE = "in a rollout a call has one answer, and log-probs stay in its tree; leave n and logprobs out"
BODY = 32 * 2**20
"""Bytes of a call at most."""


@dataclass
class WaitingCall:
    """A call that waits for its answer."""

    ask: Ask
    draw: Draw
    answered: asyncio.Future[CallAnswer] = field(repr=False)
    state: str = ""
    """The agent's own name of the state it is in."""

    def reply(self, answer: CallAnswer) -> None:
        """Answer it; nothing where the agent has given up waiting."""
        if not self.answered.done():
            self.answered.set_result(answer)

    def refuse(self) -> None:
        """Say that nobody answers any more."""
        if not self.answered.done():
            self.answered.set_exception(GatewayError("this rollout has ended", 409))


@dataclass
class CallsOfRun:
    """The calls of one run of an agent, counted from 0 in the order they came, and the latest one's own reward."""

    came: int = 0
    answered: int = -1
    """The call that was answered last."""
    reward: float = 0.0
    refused: str = ""
    """Why the call that was refused last was."""


@dataclass
class Door:
    """Calls of all agents of one task, by the key each run was given. `codec` counts tokens."""

    codec: Codec
    port: int = 0
    ignored: frozenset[str] = frozenset()
    """Fields of calls that are taken for not sent."""
    waiting: dict[str, asyncio.Queue[WaitingCall]] = field(default_factory=dict[str, "asyncio.Queue[WaitingCall]"])
    rewards: dict[str, float] = field(default_factory=dict[str, float])
    """Of whole runs."""
    calls: dict[str, CallsOfRun] = field(default_factory=dict[str, "CallsOfRun"])

    def open(self) -> str:
        """A key for one run of an agent."""
        key = secrets.token_urlsafe(18)
        self.waiting[key], self.calls[key] = asyncio.Queue(), CallsOfRun()
        return key

    def shut(self, key: str) -> None:
        """No more calls of this run; those that wait are refused."""
        queue = self.waiting.pop(key, None)
        self.rewards.pop(key, None)
        self.calls.pop(key, None)
        while queue is not None and not queue.empty():
            queue.get_nowait().refuse()

    def address(self, key: str) -> str:
        """Where a run of an agent finds its policy."""
        return f"http://127.0.0.1:{self.port}/s/{key}/v1"

    async def asked(self, key: str) -> WaitingCall:
        """The next call of a run."""
        return await self.waiting[key].get()

    async def call(self, key: str, ask: Ask, draw: Draw, state: str = "") -> CallAnswer:
        """Wait for what the rollout answers to a call."""
        if key not in self.waiting:
            raise GatewayError("this rollout has ended", 409)
        asking = WaitingCall(ask, draw, asyncio.get_running_loop().create_future(), state)
        calls, number = self.calls[key], self.calls[key].came
        calls.came += 1
        self.waiting[key].put_nowait(asking)
        answer = await asking.answered
        calls.answered = number
        return answer

    def gained(self, key: str) -> float:
        """What a run has sent as rewards of calls since this was last asked."""
        calls = self.calls.get(key)
        if calls is None:
            return 0.0
        reward, calls.reward = calls.reward, 0.0
        return reward

    def refused(self, key: str, *, first: bool = False) -> str:
        """Why a call of a run was refused; with `first` only where none was taken."""
        calls = self.calls.get(key)
        return "" if calls is None or (first and calls.came) else calls.refused

    async def serve(self) -> None:
        """Listen on a free port of this machine alone, as long as the process lives."""
        from aiohttp import web

        from rolltree.gateway.malformed import Runner

        app = web.Application(client_max_size=BODY, middlewares=[guarded("")])
        for wire in WIRES:
            app.router.add_post("/s/{key}" + wire.path, self._handler(wire))
        app.router.add_post("/s/{key}/reward", self._reward)
        app.router.add_get("/s/{key}/v1/models", _models)
        runner = Runner(app, handler_cancellation=True, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]

    def _handler(self, wire: WireFormat) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.StreamResponse:
            from aiohttp import web

            try:
                body, ask, draw = await self._understood(request, wire)
            except GatewayError as error:
                if calls := self.calls.get(request.match_info["key"]):
                    calls.refused = str(error)
                raise
            written = written_for(body, "policy", self.codec)

            async def call(_: OnText | None) -> SessionReply:
                answer = await self.call(request.match_info["key"], ask, draw, state_in(body))
                return SessionReply(0, self._prompt(ask), (self._sample(answer),), (answer,))

            if body.get("stream"):
                return await stream(request, wire, written, call, pieces=False)
            return web.json_response(wire.whole(written, await call(None)))

        return handle

    async def _understood(self, request: web.Request, wire: WireFormat) -> tuple[dict[str, Any], Ask, Draw]:
        given = await read_body(request)
        size = len(await request.read())
        body, ask, draw = await beside(lambda: understood(wire, given, 2**31 - 1, self.ignored), size)
        if draw.n > 1 or body.get("logprobs"):
            raise GatewayError(NO_MORE)
        return body, ask, draw

    async def _reward(self, request: web.Request) -> web.Response:
        from aiohttp import web

        key, body = request.match_info["key"], await read_body(request)
        if key not in self.waiting:
            raise GatewayError("this rollout has ended", 409)
        reward, call, calls = number(body, "reward"), body.get("call"), self.calls[key]
        if call is None:
            self.rewards[key] = reward
        elif type(call) is int and call == calls.answered:
            calls.reward += reward
        else:
            raise GatewayError(
                f"call is {call!r}; in a rollout a call is rewarded before the next one is sent, and the last that was "
                f"answered is {calls.answered}"
            )
        return web.json_response({"reward": reward})

    def _prompt(self, ask: Ask) -> ContextPrompt:
        """For the count of tokens alone."""
        text = ask.text if ask.text is not None else "".join(str(m["content"]) for m in ask.messages or ())
        return ContextPrompt(ask, text, np.asarray(self.codec.encode(text), np.int32))

    def _sample(self, answer: CallAnswer) -> Sample:
        """For the count of tokens alone."""
        ids = np.asarray(self.codec.encode(answer.text), np.int32)
        empty = nothing("eos")
        blank = np.full(len(ids), np.nan, np.float32)
        return Sample(ids, blank, blank, empty.version, "eos")


def state_in(body: Mapping[str, Any]) -> str:
    """The name of the agent's state in a call, `{"metadata": {"state": …}}`; "" where it has none."""
    told = body.get("metadata")
    state: Any = cast(Mapping[str, Any], told).get("state") if isinstance(told, Mapping) else None
    if state is not None and not isinstance(state, str):
        raise GatewayError(f"metadata.state is {state!r:.60}; give the state's name as a text")
    return state or ""


async def serving_door(tokenizer: Any, ignored: frozenset[str] = frozenset()) -> Door:
    """An open door; without a tokenizer characters are counted."""
    door = Door(Characters() if tokenizer is None else HFCodec(tokenizer), ignored=ignored)
    await door.serve()
    return door


async def _models(_: web.Request) -> web.Response:
    from aiohttp import web

    one = {"id": "policy", "object": "model", "created": 0, "owned_by": "rolltree"}
    return web.json_response({"object": "list", "data": [one]})
