"""Who may look."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rolltree.errors import RolltreeError
from rolltree.origins import is_loopback, same
from rolltree.view.guard import Guard
from rolltree.view.server import announcement, free_port


def ask(guard_token: str | None, *, local: bool = True, kind: str = "http", query: str = "", method: str = "GET",
        **headers: str) -> list[Any]:  # fmt: skip
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    given = {"host": "127.0.0.1:8642", **headers}
    scope = {"type": kind, "method": method, "path": "/step", "query_string": query.encode(),
             "headers": [(k.encode(), v.encode()) for k, v in given.items()]}  # fmt: skip
    asyncio.run(Guard(app, guard_token, local)(scope, receive, send))
    return sent


def test_without_a_token_only_this_machine_is_answered_and_no_other_site():
    assert ask(None)[0]["status"] == 200
    assert (b"x-content-type-options", b"nosniff") in ask(None)[0]["headers"]
    assert ask(None, host="evil.example:8642")[0]["status"] == 403
    assert ask(None, method="POST", origin="http://evil.example")[0]["status"] == 403
    assert ask(None, kind="websocket", origin="http://evil.example")[0]["type"] == "websocket.close"
    assert ask(None, kind="websocket", origin="http://127.0.0.1:8642")[0]["status"] == 200
    assert ask(None, kind="websocket", origin="http://127.0.0.1:9999")[0]["type"] == "websocket.close"


def test_a_token_is_asked_of_pages_files_and_sockets():
    for kind, refused in (("http", "http.response.start"), ("websocket", "websocket.close")):
        for extra in ({}, {"cookie": "rolltree-view=wrong"}, {"authorization": "Bearer no"}, {"query": "token="}):
            assert ask("secret", local=False, kind=kind, **extra)[0]["type"] == refused
    assert ask("secret", local=False)[0]["status"] == 401
    assert ask("secret", local=False, cookie="a=b; rolltree-view=secret")[0]["status"] == 200
    assert ask("secret", local=False, authorization="Bearer secret")[0]["status"] == 200


def test_a_token_moves_from_the_address_into_a_cookie():
    headers = dict(ask("secret", local=False, query="run=a&token=secret")[0]["headers"])
    assert headers[b"location"] == b"/step?run=a"
    assert b"HttpOnly" in headers[b"set-cookie"]
    assert ask("secret", local=False, query="token=secreT")[0]["status"] == 401


def test_nothing_is_never_the_token():
    assert not same("", "")
    assert not same("secre", "secret")
    assert same("secret", "secret")
    assert [is_loopback(h) for h in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.com")] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_a_taken_port_is_refused_in_a_sentence():
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(RolltreeError, match=f"cannot listen on 127.0.0.1 port {port}"):
            free_port("127.0.0.1", port)
    assert free_port("127.0.0.1", 0) > 0
    assert "http://[::1]:80/?token=abc" in announcement([], "::1", 80, "abc")
