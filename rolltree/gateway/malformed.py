"""What is no HTTP, or breaks off inside of it: aiohttp's runner, told to answer in our form and to log one line."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from rolltree.gateway.errors import GatewayError
from rolltree.gateway.request import first_line, malformed, refusal

_SILENT: Any = None


class Connection(web.RequestHandler):
    """One connection. Requests that cannot be parsed are refused like all others; no traceback is theirs."""

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The answer to what never became a request."""
        if not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        why = f"this is not a request that is read here: {first_line(exc)}"
        malformed(request.remote, why)
        answer = refusal(GatewayError(why, status))
        answer.force_close()
        return answer

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """A body that breaks off was logged where it was read."""
        if not isinstance(kw.get("exc_info"), web.RequestPayloadError | HttpProcessingError):
            super().log_exception(*args, **kw)


class Runner(web.AppRunner):
    """A runner of an app whose connections are such ones."""

    @property
    def server(self) -> Any:
        """Makes the connections."""
        made = super().server
        return made and (lambda: Connection(made, loop=asyncio.get_running_loop(), access_log=_SILENT))
