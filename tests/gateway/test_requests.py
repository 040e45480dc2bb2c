"""One HTTP request to the gateway: who may send it, what of it is read, and what is told where it is none."""

import asyncio
import gzip
import json
import logging
import threading
from contextlib import asynccontextmanager

import pytest

from rolltree.gateway.gateway import Gateway
from rolltree.gateway.request import BRACKETS, NESTED, SMALL
from rolltree.gateway.server import serving
from rolltree.gateway.wire.fields import MESSAGES, TOOLS
from tests.gateway.policies import letters

CHAT = "/v1/chat/completions"
GOOD = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}).encode()
JSON = {"Content-Type": "application/json"}


class Wire:
    """Bytes to a served gateway, and the status and error that come back."""

    def __init__(self, port, gateway):
        self.port, self.gateway = port, gateway

    async def raw(self, sent):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(sent)
        async with asyncio.timeout(60):
            got = await reader.read()
        writer.close()
        head, _, body = got.partition(b"\r\n\r\n")
        return int(head.split()[1]), body

    async def ask(self, path=CHAT, body=GOOD, headers=None, method="POST"):
        given = {"Host": f"127.0.0.1:{self.port}", "Connection": "close", "Content-Length": len(body)}
        given |= JSON if headers is None else headers
        lines = [
            f"{method} {path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in given.items() if value is not None),
        ]
        status, told = await self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return status, json.loads(told)

    async def refused(self, status, word, *args, **named):
        """One sentence in the form that OpenAI's and Anthropic's clients read."""
        code, told = await self.ask(*args, **named)
        assert (code, set(told["error"])) == (status, {"message", "type", "code", "param"}), told
        said = told["error"]["message"]
        assert word in said, said
        assert "\n" not in said
        assert len(said) < 500
        return told["error"]


@asynccontextmanager
async def wire(token="", host="127.0.0.1", **more):
    engine = letters()
    gateway = Gateway(engine, "tiny", **more)
    async with serving(gateway, host, token=token) as (address, _):
        yield Wire(int(address.rpartition(":")[2]), gateway)
    await engine.close()


def run(work):
    return asyncio.run(work())


# -- who may ask ---------------------------------------------------------------------------------------------------


def test_a_page_of_another_site_can_neither_drive_nor_read_it():
    async def work():
        async with wire() as w:
            await w.ask("/s/a/v1/chat/completions")
            foreign = ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": ""},
                       {"Host": "evil.example"}, {"Host": f"evil.example:{w.port}"}, {"Host": "127.0.0.1.evil.example"},
                       {"Host": "[::1", "Origin": "http://[::1"})  # fmt: skip
            for headers in foreign:
                for path, body in (("/s/a/reward", b'{"reward": 1e9}'), ("/s/a/end", b"{}"), (CHAT, GOOD)):
                    await w.refused(403, "this server", path, body, {**JSON, **headers})
                for path in ("/s/a", "/v1/models", "/health", "/nothing"):
                    await w.refused(403, "this server", path, b"", headers, "GET")
            assert not w.gateway.sessions["a"].ended
            assert len(w.gateway.sessions["a"].record.calls) == 1
            own = {**JSON, "Origin": f"http://127.0.0.1:{w.port}"}
            assert (await w.ask(headers=own))[0] == 200
            assert (await w.ask(headers={**JSON, "Host": "localhost"}))[0] == 200

    run(work)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None, ";;",
                                  "application/jsonp", "text/json"])  # fmt: skip
def test_a_body_that_a_page_may_send_unasked_is_refused(kind):
    """What a page sends without the server's leave is never of the type of JSON."""

    async def work():
        async with wire() as w:
            await w.ask("/s/a/v1/chat/completions")
            headers = {} if kind is None else {"Content-Type": kind}
            await w.refused(415, "Content-Type: application/json", "/s/a/reward", b'{"reward": 1e9}', headers)
            await w.refused(415, "Content-Type: application/json", CHAT, GOOD, headers)
            assert not w.gateway.sessions["a"].ended

    run(work)


def test_beyond_this_machine_the_token_opens_all_but_the_word_that_it_lives():
    async def work():
        async with wire("secret", "0.0.0.0") as w:
            named = {"Host": "gpu-7.lan:8080"}
            assert await w.ask("/health", b"", named, "GET") == (200, {"status": "ok"})
            for path in ("/v1/models", "/s/a", "/healthy", "/health/", "/nothing"):
                await w.refused(401, "token", path, b"", named, "GET")
            await w.refused(401, "token", headers={**JSON, **named})
            shown = {**JSON, **named, "Authorization": "Bearer secret:a"}
            assert (await w.ask(headers=shown))[0] == 200
            await w.refused(403, "own pages", headers={**shown, "Origin": "http://evil.example"})

    run(work)


# -- what is read --------------------------------------------------------------------------------------------------


def test_compressed_bodies_are_read_and_bounded_by_what_they_become():
    async def work():
        async with wire() as w:
            await w.ask("/s/a/v1/chat/completions")
            zipped = {**JSON, "Content-Encoding": "gzip"}
            assert (await w.ask(body=gzip.compress(GOOD), headers=zipped))[0] == 200
            bomb = gzip.compress(b'{"a": "' + b"a" * (w.gateway.bounds.body_bytes + 1) + b'"}')
            await w.refused(413, "larger than", body=bomb, headers=zipped)
            for cut in (gzip.compress(GOOD)[:8], gzip.compress(GOOD)[:-12], b""):
                for place in ("/s/a/end", CHAT):
                    await w.refused(400, "the body is", place, cut, zipped)
            for kind, cut in (("br", b"\x1f"), ("gzip", gzip.compress(b"{}")[:10])):
                await w.refused(400, "the body is empty", "/s/a/end", cut, {**JSON, "Content-Encoding": kind})
            assert not w.gateway.sessions["a"].ended

    run(work)


@pytest.mark.parametrize("kind", ["gzip", "deflate", "br"])
def test_garbage_in_an_encoding_is_a_400_and_one_line_in_the_log(kind, caplog):
    async def work():
        async with wire() as w:
            await w.refused(400, "cannot be read", headers={**JSON, "Content-Encoding": kind})
            await w.refused(415, "'rot13'", headers={**JSON, "Content-Encoding": "rot13"})
            await w.refused(415, "UTF-8", headers={"Content-Type": "application/json; charset=utf-16"})

    with caplog.at_level(logging.INFO):
        run(work)
    (line,) = caplog.records
    assert line.exc_info is None
    assert "\n" not in line.getMessage()


BROKEN = {
    "no HTTP": b"hello\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "version": b"GET / HTTP/9.9x\r\nHost: a\r\n\r\n",
    "header": b"GET / HTTP/1.1\r\nHo st\x01: a\r\n\r\n",
    "long header": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
    "long line": b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "headers": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"".join(b"X%d: a\r\n" % i for i in range(300)) + b"\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "length": b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n",
    "lengths": b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunk": b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
    "path": b"POST /s/\xff\xfe/v1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "address": b"GET http://[::1/v1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_no_http_is_one_sentence_and_one_line_in_the_log(kind, caplog):
    async def work():
        async with wire() as w:
            status, body = await w.raw(BROKEN[kind])
            said = json.loads(body)["error"]
            assert (status, said["type"]) == (400, "invalid_request_error")
            assert "\n" not in said["message"]
            assert (await w.ask())[0] == 200

    with caplog.at_level(logging.INFO):
        run(work)
    (line,) = caplog.records
    assert line.exc_info is None
    assert "\n" not in line.getMessage()


def test_wrong_places_and_methods_are_told_in_the_same_form():
    async def work():
        async with wire() as w:
            await w.refused(404, "/v1/embeddings", "/v1/embeddings")
            await w.refused(405, "takes POST", CHAT, b"", {}, "GET")
            await w.refused(400, "printable", "/s/%00/v1/chat/completions")
            for name in ("%zz", "%ff", "%2e%2e"):
                assert (await w.ask(f"/s/{name}/v1/chat/completions"))[0] == 200

    run(work)


def nested(depth):
    return b'{"metadata": ' + b"[" * depth + b"]" * depth + b"," + GOOD[1:]


def test_amounts_are_bounded_and_each_bound_is_told():
    message = {"role": "user", "content": "a"}
    tool = {"type": "function", "function": {"name": "f"}}

    async def work():
        async with wire() as w:
            for word, body in (
                ("brackets", b'{"a": [' + b"[]," * BRACKETS + b"1]}"),
                ("commas", b'{"a": [' + b"1," * 1_000_001 + b"1]}"),
                ("within each other", nested(NESTED + 1)),
                ("within each other", nested(900)),
                ("messages has", json.dumps({"messages": [message] * (MESSAGES + 1)}).encode()),
                ("tools has", json.dumps({"messages": [message], "tools": [tool] * (TOOLS + 1)}).encode()),
                ("parts", json.dumps({"messages": [{"role": "user", "content": ["a"] * 1001}]}).encode()),
            ):
                await w.refused(400, word, body=body)
            assert (await w.ask(body=nested(NESTED - 1)))[0] == 200
            await w.refused(400, "not JSON", body=b"[" * 200_00)

    run(work)


def test_what_is_large_is_read_beside_the_loop_and_others_are_answered_meanwhile(monkeypatch):
    """The body of one client is held while it is read: the loop answers another one before it is let go."""
    from rolltree.gateway import request

    began, released, read = threading.Event(), threading.Event(), request._read

    def held(raw):
        if len(raw) > SMALL:
            began.set()
            assert released.wait(60)
        return read(raw)

    monkeypatch.setattr(request, "_read", held)

    async def work():
        async with wire() as w:
            large = json.dumps({"messages": [{"role": "user", "content": "a"}] * 2000}).encode()
            slow = asyncio.ensure_future(w.ask(body=large))
            while not began.is_set():
                await asyncio.sleep(0)
            try:
                assert (await w.ask())[0] == 200
                assert not slow.done()
            finally:
                released.set()
            assert "context" in (await slow)[1]["error"]["message"]

    run(work)


def test_large_calls_are_placed_and_large_answers_written_beside_the_loop(monkeypatch):
    """Each piece of work that grows with a call is done in the thread that is kept for it."""
    from rolltree.gateway import session
    from rolltree.gateway.wire import chat

    where = []
    place, told = session.GatewaySession._placed, chat.logprobs
    monkeypatch.setattr(
        session.GatewaySession, "_placed", lambda *a: (where.append(threading.current_thread().name), place(*a))[1]
    )
    monkeypatch.setattr(chat, "logprobs", lambda *a: (where.append(threading.current_thread().name), told(*a))[1])

    async def work():
        async with wire() as w:
            body = {"messages": [{"role": "user", "content": "a"}] * 1500}
            await w.ask(body=json.dumps(body).encode())
            body = {**json.loads(GOOD), "max_tokens": 400, "logprobs": True, "top_logprobs": 20, "n": 16, "seed": 1}
            assert (await w.ask(body=json.dumps(body).encode()))[0] == 200

    run(work)
    assert where[0].startswith("rolltree-gateway")
    assert where[1] == threading.main_thread().name
    assert len(where) == 18
    assert all(name.startswith("rolltree-gateway") for name in where[2:])


# -- names ---------------------------------------------------------------------------------------------------------


NAMES = ["", "a", "é", "日本", "a b", "a/b", "/", "..", "a" * 200, "a" * 201, "a\nb", "\x00", "\x7f",
         "\u202e", "\u2028", "\t", 0, 7, -1.5, True, False, [], ["a"], {}, {"a": 1}]  # fmt: skip


def test_names_of_sessions_and_items_are_bounded_and_told_in_a_sentence():
    async def work():
        async with wire() as w:
            for name in NAMES:
                text = isinstance(name, str)
                good = text and 0 < len(name) <= 200 and name.isprintable()
                status, told = await w.ask("/sessions", json.dumps({"item": name}).encode())
                if good or name == "":
                    assert status == 200, told
                    assert told["item"] == (name or told["session"])
                else:
                    assert status == 400
                    assert ("1 to 200 printable characters" if text else "give a text") in told["error"]["message"]
                status, told = await w.ask("/sessions", json.dumps({"session": name}).encode())
                assert status == (200 if name == "" or (good and "/" not in name) else 400), told

    run(work)


def test_health_and_models_are_told_and_another_model_is_refused():
    async def work():
        async with wire(aliases=("gpt-4o", "*/b")) as w:
            assert await w.ask("/health", b"", {}, "GET") == (200, {"status": "ok"})
            told = (await w.ask("/v1/models", b"", {}, "GET"))[1]["data"]
            assert [one["id"] for one in told] == ["tiny", "gpt-4o", "*/b"]
            for name in ("tiny", "gpt-4o", "*/b"):
                status, answer = await w.ask(body=json.dumps({**json.loads(GOOD), "model": name}).encode())
                assert (status, answer["model"]) == (200, name)
                assert (await w.ask(f"/v1/models/{name}", b"", {}, "GET"))[1]["id"] == name
            for name in ("gpt-5", "", 7, ["tiny"]):
                body = json.dumps({**json.loads(GOOD), "model": name}).encode()
                error = await w.refused(404, "'tiny' and 'gpt-4o'", body=body)
                assert (error["code"], error["param"]) == ("model_not_found", "model")
            await w.refused(404, "tiny", "/v1/models/gpt-5", b"", {}, "GET")
        async with wire(aliases=("*",)) as w:
            body = json.dumps({**json.loads(GOOD), "model": "anything"}).encode()
            assert (await w.ask(body=body))[1]["model"] == "anything"
            assert [one["id"] for one in (await w.ask("/v1/models", b"", {}, "GET"))[1]["data"]] == ["tiny"]

    run(work)
