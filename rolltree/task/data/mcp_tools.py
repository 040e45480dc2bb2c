"""Tools of an MCP server that is started here and spoken to over its standard input and output.

The server lives as long as the program and is shared by all rollouts, so its tools should depend on their arguments
alone: what it remembers, every rollout can change.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import threading
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from pydantic import ValidationError

from rolltree.task.data.tools import Tool, ToolFailedError
from rolltree.task.foreign.threads import awaited
from rolltree.task.items import TaskError
from rolltree.visible import shortened

STARTING = 30.0
"""Seconds a server may take to start and to say what it has."""
ANSWERING = 5.0
"""Seconds after which a server that was asked whether it is there counts as gone."""

KEPT = 4096
"""Bytes that are kept of the end of its standard error."""
SETTLING = 1.0
"""Seconds in which the last words of a server that ended arrive."""


class ServerLostError(ConnectionError):
    """The server is gone: no answer of a tool, so the rollout has no outcome."""


def mcp_tools(command: str) -> tuple[Tool, ...]:
    """All tools of the server that a command starts."""
    if find_spec("mcp") is None:
        raise TaskError("tools of MCP servers need the library mcp: pip install 'rolltree[mcp]'")
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise TaskError(f"--mcp {command!r} cannot be cut into words ({error}); close its quotation marks") from None
    if not words:
        raise TaskError("--mcp needs the command that starts the server, as in --mcp 'python server.py'")
    server = _Server(words)
    try:
        found = awaited(server.open())
    except Exception as error:  # it may fail at any place, in any way
        told = f"{_innermost(error)}{server.said()}"
        raise TaskError(f"the MCP server {command!r} does not answer: {told}; try the command by itself") from None
    if not found:
        raise TaskError(f"the MCP server {command!r} has no tools")
    return tuple(_tool(server, one, command) for one in found)


def _tool(server: _Server, found: Any, command: str) -> Tool:
    name = str(found.name)
    # mcp 2 writes Python's names, mcp 1 those of the protocol.
    asked = getattr(found, "input_schema", None) or getattr(found, "inputSchema", None) or {"type": "object"}
    schema = {"type": "function", "function": {
        "name": name, "description": found.description or name, "parameters": asked}}  # fmt: skip

    def call(arguments: Mapping[str, Any]) -> str:
        try:
            told = awaited(server.call(name, arguments))
        except Exception as error:
            if not awaited(server.alive()):
                told = f"{_innermost(error)}{server.said()}"
                raise ServerLostError(f"the MCP server {command!r} is gone: {told}") from error
            raise ToolFailedError(_innermost(error)) from error
        text = "\n".join(str(getattr(part, "text", f"({part.type})")) for part in told.content)
        if getattr(told, "is_error", False) or getattr(told, "isError", False):
            raise ToolFailedError(text)
        return text

    return Tool(name, schema, call)


class _StandardError:
    """The end of what a server writes on its standard error, which nothing else keeps."""

    def __init__(self) -> None:
        self._end = bytearray()
        read, write = os.pipe()
        self.sink = os.fdopen(write, "w", encoding="utf-8")
        self._reader = threading.Thread(target=self._read, args=(read,), name="rolltree-mcp", daemon=True)
        self._reader.start()

    def _read(self, pipe: int) -> None:
        while piece := os.read(pipe, 1 << 16):
            self._end += piece
            del self._end[:-KEPT]
        os.close(pipe)

    def last(self) -> str:
        """The last line, which in a traceback is the error; "" where nothing was said."""
        self._reader.join(SETTLING)  # where it ended, all of it is on its way
        lines = bytes(self._end).decode(errors="replace").split("\n")
        return shortened(next((line.strip() for line in reversed(lines) if line.strip()), ""))


class _Quiet(logging.Filter):
    """The library writes a traceback for each line that is no message; what was printed is told in one sentence."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info is not None and record.exc_info[1] is not None:
            record.msg = "%s: an MCP server printed a line that is no message; let it print to its standard error"
            record.args, record.exc_info = (record.levelname.lower(),), None
        return True


_quiet = _Quiet()


class _Server:
    """One server and the task that holds its session: the library wants both ends of it in one task."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._task: asyncio.Task[None] | None = None
        self._session: Any = None
        self._opening = asyncio.Lock()
        self._error: _StandardError | None = None
        self._printed = ""

    def said(self) -> str:
        """What it said beside messages, behind a reason: on its standard error, and on its output."""
        last = "" if self._error is None else self._error.last()
        parts = [f'; its standard error ends with "{last}"' if last else ""]
        return "".join([*parts, f'; it printed "{self._printed}", which is no message' if self._printed else ""])

    async def open(self) -> list[Any]:
        """Start it and list its tools."""
        self._ready = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(self._ready))
        return await asyncio.wait_for(asyncio.shield(self._ready), STARTING)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """One call; a server that was lost before is started again."""
        if self._session is None:
            async with self._opening:
                if self._session is None:
                    await self.open()
        session: Any = self._session
        return await session.call_tool(name, dict(arguments))

    async def alive(self) -> bool:
        """Whether it still answers; one that does not is given up."""
        session, task = self._session, self._task
        try:
            await asyncio.wait_for(session.send_ping(), ANSWERING)
        except Exception:  # whatever its transport raises
            if session is self._session:
                self._session = None
                if task is not None:
                    task.cancel()
            return False
        return True

    async def _hold(self, ready: asyncio.Future[list[Any]]) -> None:
        from mcp import ClientSession, StdioServerParameters
        from mcp.client.stdio import stdio_client

        try:
            logging.getLogger("mcp.client.stdio").addFilter(_quiet)
            start = StdioServerParameters(command=self._words[0], args=self._words[1:])
            self._error = _StandardError()
            with self._error.sink as errors:  # what it logs would stand between our lines
                async with stdio_client(start, errors) as (reads, writes):
                    errors.close()  # the server holds its own end
                    async with ClientSession(reads, writes, message_handler=self._heard) as session:
                        await session.initialize()
                        found = (await session.list_tools()).tools
                        self._session = session
                        ready.set_result(list(found))
                        await asyncio.Event().wait()
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)

    async def _heard(self, message: Any) -> None:
        """Note a line that is no message; whatever else a server tells by itself is of no use here."""
        if isinstance(message, ValidationError):
            self._printed = self._printed or shortened(str(message.errors()[0].get("input", "")).strip())


def _innermost(error: BaseException) -> str:
    """The first cause in a group of exceptions, in one line."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
