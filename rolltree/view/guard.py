"""Who may look: a token on every request where the viewer listens beyond this machine, and no other site's pages ever.

Requests that name another host or come from another origin are refused (`rolltree.origins`), for pages and for the
socket behind them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from rolltree.origins import foreign, same

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "rolltree-view"
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)


class Guard:
    """ASGI middleware in front of everything the viewer answers."""

    def __init__(self, app: App, token: str | None, local: bool) -> None:
        self._app, self._token, self._local = app, token, local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        trouble = foreign(headers, self._local, "this viewer")
        if trouble:
            await _refuse(scope, receive, send, 403, trouble)
        elif self._token is not None and not self._known(scope, headers):
            words = "this viewer asks for a token: open the address it printed when it started"
            await _refuse(scope, receive, send, 401, words)
        elif self._token is not None and scope["type"] == "http" and _token_in(scope):
            await self._welcome(scope, send)
        else:
            await self._app(scope, receive, _with_headers(send))

    def _known(self, scope: Scope, headers: dict[str, str]) -> bool:
        given = (_token_in(scope), _cookie(headers.get("cookie", "")), headers.get("authorization", "")[7:])
        return any([same(g, self._token or "") for g in given])  # noqa: C419 - every one is compared, whichever is right

    async def _welcome(self, scope: Scope, send: Send) -> None:
        """Move the token from the address, which is logged and shared, into a cookie."""
        rest = [(k, v) for k, v in parse_qsl(scope["query_string"].decode("latin-1")) if k != "token"]
        place = "/" + quote(scope["path"].lstrip("/")) + (f"?{urlencode(rest)}" if rest else "")
        cookie = f"{COOKIE}={self._token}; HttpOnly; SameSite=Lax; Path=/"
        headers = [(b"location", place.encode()), (b"set-cookie", cookie.encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 303, "headers": [*headers, *_HEADERS]})
        await send({"type": "http.response.body", "body": b""})


def _token_in(scope: Scope) -> str:
    return dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"))).get("token", "")


def _cookie(header: str) -> str:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _with_headers(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
        await send(message)

    return sending


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, words: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": words})
        return
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *_HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{words}\n".encode()})
