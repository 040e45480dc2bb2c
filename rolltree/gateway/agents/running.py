"""One run of an agent: a process or a coroutine that asks through the door, or ends.

All coroutines here run in the one event loop that `threads.awaited` keeps.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import json
import os
import shlex
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any, Protocol
from urllib.parse import urlsplit

from rolltree.gateway.agents.door import Door, WaitingCall
from rolltree.gateway.agents.limits import AgentLimits, check_sandbox, refused
from rolltree.gateway.agents.outside import Outside
from rolltree.gateway.answer import CallAnswer
from rolltree.task.foreign.parts import locate
from rolltree.task.foreign.threads import beside
from rolltree.task.items import TaskError

SOON = 1.0
"""Seconds that a replay waits for a call which came earlier than those that are here."""
KEPT = 4000
"""Characters of standard error that a failure tells."""


@dataclass(frozen=True, slots=True)
class Ended:
    """An agent that is through: what it gave as its final answer, or as its reward."""

    final: str = ""
    reward: float | None = None


class Agent(Protocol):
    """What starts runs: gives what it is asked on, and returns how it ended."""

    async def __call__(self, item: Mapping[str, Any], base_url: str, key: str, outside: Outside) -> Ended:
        """Run to the end; cancelling it ends whatever it started. A process reads the world by itself."""
        ...


class AgentRun:
    """An agent on one item. It is begun, answered and given up; between answers it waits."""

    def __init__(self, agent: Agent, door: Callable[[], Awaitable[Door]], seconds: float) -> None:
        self._agent, self._door, self._seconds = agent, door, seconds
        self._work: asyncio.Task[Ended] | None = None
        self._at: Door | None = None
        self.key = ""
        self.asking: WaitingCall | None = None
        """The call that waits for an answer."""
        self._earned = 0.0
        self._held: list[WaitingCall] = []
        """Calls that came beside it."""

    async def begin(self, item: Mapping[str, Any], outside: Outside) -> WaitingCall | Ended:
        """Start the agent; its first call, or its end."""
        await self.give_up()
        self._at = await self._door()
        self.key = self._at.open()
        self._work = asyncio.ensure_future(self._agent(item, self._at.address(self.key), self.key, outside))
        return await self._next()

    async def answer(
        self, answer: CallAnswer, wanted: Callable[[WaitingCall], bool] | None = None
    ) -> WaitingCall | Ended:
        """Answer the call that waits; the agent's next call, or its end. Of calls made side by side that is the wanted
        one, if it comes soon; the others wait."""
        if self.asking is None:
            raise TaskError("an answer was given to an agent that did not ask")
        self.asking.reply(answer)
        self.asking = None
        return await self._next(wanted)

    def gained(self) -> float:
        """What the agent has sent as rewards of calls since this was last asked."""
        earned, self._earned = self._earned, 0.0
        return earned + (0.0 if self._at is None else self._at.gained(self.key))

    async def give_up(self) -> None:
        """End the agent, whatever it is at."""
        if self._work is not None and not self._work.done():
            self._work.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._work
        if self._at is not None:
            self._at.shut(self.key)
        for waits in (*self._held, *([] if self.asking is None else [self.asking])):
            waits.refuse()
        self._work, self.asking, self._at = None, None, None
        self._held.clear()

    def close(self) -> None:
        """Give the agent up, from any thread."""
        work = self._work
        if work is not None and not work.done():
            with suppress(RuntimeError):  # the loop is closed: nothing runs any more
                work.get_loop().call_soon_threadsafe(work.cancel)

    def __del__(self) -> None:
        self.close()

    async def _next(self, wanted: Callable[[WaitingCall], bool] | None = None) -> WaitingCall | Ended:
        while True:
            soon = next((one for one in self._held if wanted is None or wanted(one)), None)
            if soon is not None:
                self._held.remove(soon)
                self.asking = soon
                return soon
            came = await self._heard(min(SOON, self._seconds) if self._held else self._seconds)
            if came is None:
                wanted = None
            elif isinstance(came, Ended):
                return came
            else:
                self._held.append(came)

    async def _heard(self, seconds: float) -> WaitingCall | Ended | None:
        """The next call or the end; None where calls wait and nothing more came."""
        assert self._at is not None
        assert self._work is not None
        asked = asyncio.ensure_future(self._at.asked(self.key))
        done, _ = await asyncio.wait({asked, self._work}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if asked in done:
            return asked.result()
        asked.cancel()
        work = self._work
        reward = self._at.rewards.get(self.key)
        if work in done:
            ended = await self._through(work, self._at)
            self._earned += self._at.gained(self.key)
            self._at.shut(self.key)
            return ended if reward is None else Ended(ended.final, reward)
        if self._held:
            return None
        await self.give_up()
        raise TaskError(f"the agent neither asked nor ended for {self._seconds:g} s and was stopped")

    async def _through(self, work: asyncio.Task[Ended], door: Door) -> Ended:
        """How the agent ended. One that ends because its call was refused says so in words of its own, if at all."""
        try:
            ended = await work
        except Exception as error:
            if why := door.refused(self.key):
                raise TaskError(f"a call of the agent was refused: {why}") from error
            raise
        if why := door.refused(self.key, first=True):
            raise TaskError(f"the first call of the agent was refused: {why}")
        return ended


_alive: set[int] = set()


@atexit.register
def _end_all() -> None:
    for group in _alive:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def agent_of(told: str | Callable[..., Any], limits: AgentLimits | None = None) -> Agent:
    """A command, `module:function` or `file.py:function`, or the function itself. Only processes can be limited."""
    limits = limits or AgentLimits()
    try:
        words = [] if callable(told) else shlex.split(told)
    except ValueError as error:
        raise TaskError(f"the agent {told!r} cannot be cut into words ({error}); close its quotation marks") from None
    if callable(told) or (len(words) == 1 and ":" in words[0]):
        if limits.boxed:
            raise TaskError("memory, cpu_seconds and sandbox hold processes; give the agent as a command")
        made = told if callable(told) else locate(words[0], "the agent")
        if not callable(made):
            raise TaskError(f"the agent {told} is no function but {type(made).__name__}")
        return _within(_function(made), limits.total_seconds)
    if not words:
        raise TaskError("the agent is empty; give a command such as 'python my_agent.py', or module:function")
    if limits.sandbox:
        check_sandbox()
    return _within(_process(words, limits), limits.total_seconds)


def _within(agent: Agent, seconds: float) -> Agent:
    """An agent that is stopped after so long, whatever it does; 0 = never."""
    if not seconds:
        return agent

    async def run(item: Mapping[str, Any], base_url: str, key: str, outside: Outside) -> Ended:
        try:
            async with asyncio.timeout(seconds):
                return await agent(item, base_url, key, outside)
        except TimeoutError:
            raise TaskError(f"the agent ran longer than {seconds:g} s and was stopped") from None

    return run


def _process(words: list[str], limits: AgentLimits) -> Agent:
    async def run(item: Mapping[str, Any], base_url: str, key: str, outside: Outside) -> Ended:
        told = {
            "OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": key, "ANTHROPIC_API_KEY": key,
            "ANTHROPIC_BASE_URL": base_url.removesuffix("/v1"), "ROLLTREE_ITEM": json.dumps(item),
        }  # fmt: skip
        if not limits.sandbox:
            return await started(told, "", base_url)
        with TemporaryDirectory(prefix="rolltree-agent-", ignore_cleanup_errors=True) as scratch:
            return await started(told, scratch, base_url)

    async def started(told: Mapping[str, str], scratch: str, base_url: str) -> Ended:
        command, around = (
            limits.command(words, scratch, urlsplit(base_url).port or 0),
            limits.environment(told, scratch),
        )
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *command, env=around, cwd=scratch or None, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise TaskError(f"the agent {shlex.join(words)!r} cannot be started: {error.strerror}") from None
        _alive.add(process.pid)
        try:
            out, err = await asyncio.gather(_head(process.stdout, limits.output), _tail(process.stderr, KEPT))
            code = await process.wait()
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # what it started and left behind, too
            _alive.discard(process.pid)
            await process.wait()
        if why := refused(code, shlex.join(words), err):
            raise why
        if code:
            said = err.strip() or "it said nothing on standard error"
            raise TaskError(f"the agent ended with code {code}: {said}{limits.withheld(words)}")
        return Ended(out.strip())

    return run


def _function(made: Callable[..., Any]) -> Agent:
    async def run(item: Mapping[str, Any], base_url: str, key: str, outside: Outside) -> Ended:
        asked = {**item, "base_url": base_url, "api_key": key, "outside": outside}
        told = made(asked) if inspect.iscoroutinefunction(made) else beside(lambda: made(asked))
        value = await told
        if isinstance(value, bool | int | float):
            return Ended(reward=float(value))
        if value is not None and not isinstance(value, str):
            raise TaskError(f"the agent returned {value!r:.80}; return a text, a reward, or nothing")
        return Ended(value or "")

    return run


async def _head(stream: asyncio.StreamReader | None, most: int) -> str:
    kept = bytearray()
    while stream is not None and (part := await stream.read(65536)):
        kept += part
        if len(kept) > most:
            raise TaskError(f"the agent printed more than {most} bytes and was stopped; what it prints is its answer")
    return kept.decode(errors="replace")


async def _tail(stream: asyncio.StreamReader | None, most: int) -> str:
    kept = b""
    while stream is not None and (part := await stream.read(65536)):
        kept = (kept + part)[-most:]
    return kept.decode(errors="replace")
