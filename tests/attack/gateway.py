"""Clients that misbehave at the gateway's endpoint: odd bodies, names and headers, calls that are given up.

Promised: each call is answered with its own fault in a sentence, or with a reply; an honest client beside them is
served; what the sessions hold is what was sampled, and nothing of the host comes out.

Of requests that are not for this server, not JSON, too much, or no HTTP at all: each is refused in a sentence, changes
no session, and leaves at most one line in the log.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.attack.escapes import SECRET, watched
from tests.attack.frame import Attack, BrokenPromiseError
from tests.attack.odd import TEXTS, VALUES, broken_json

CALLS = 12
PATIENCE = 120.0
"""Seconds after which a call hangs."""
PATHS = ("chat/completions", "completions", "responses", "messages")
NAMES = ("a", "b", "..", "%2e%2e", "%00", "é", "a" * 300, "a%2fb", "canary", "-")
FIELDS = ("messages", "prompt", "input", "max_tokens", "temperature", "top_p", "stop", "n", "seed", "stream", "tools",
          "logprobs", "top_logprobs", "system", "response_format", "tool_choice", "model", "user")  # fmt: skip
CHAT = "/v1/chat/completions"
SHARED = {"max_tokens": 6, "model": "tiny"}
GOOD: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [{"role": "user", "content": "hi"}], **SHARED},
    "completions": {"prompt": "hi", **SHARED},
    "responses": {"input": "hi", "model": "tiny", "max_output_tokens": 6},
    "messages": {"messages": [{"role": "user", "content": "hi"}], **SHARED},
    "reward": {"reward": 1e9},
    "end": {"reward": 1e9},
    "sessions": {"item": "one"},
}
"""What each place takes."""
ROLES = ("user", "system", "assistant", "tool", "root", "", 7)


def good_at(path: str) -> dict[str, Any]:
    """A body that is right at a path."""
    return next((body for end, body in GOOD.items() if path.endswith(f"/{end}")), {})


def body_of(rng: random.Random, place: Path, path: str) -> bytes:
    """A good body with something gone wrong, or anything."""
    odd = (*VALUES, *TEXTS, f"file://{place}/canary", {"$ref": f"{place}/canary"}, [{"type": "image_url"}])
    said: dict[str, Any] = dict(good_at(path))
    for _ in range(rng.randint(0, 3)):
        said[rng.choice(FIELDS)] = rng.choice(odd)
    if rng.random() < 0.4 and "messages" in said:
        said["messages"] = [{"role": rng.choice(ROLES), "content": rng.choice(odd)} for _ in range(rng.randint(0, 3))]
    text = json.dumps(said)
    if rng.random() < 0.3:
        text = broken_json(rng, text)
    return text.encode("utf-8", "surrogatepass")


async def _ask(http: Any, address: str, rng: random.Random, place: Path) -> str:
    """One call; some hang up before they are answered."""
    name = rng.choice(NAMES)
    path = rng.choice((*(f"/s/{name}/v1/{p}" for p in PATHS), *(f"/v1/{p}" for p in PATHS), f"/s/{name}/reward",
                       f"/s/{name}/end", "/sessions", f"/s/{name}"))  # fmt: skip
    headers = {"Content-Type": rng.choice((*["application/json"] * 6, "text/plain", ""))}
    after = 0.02 * rng.random() if rng.random() < 0.2 else PATIENCE
    from aiohttp import ClientError
    from yarl import URL

    try:
        async with asyncio.timeout(after):
            url = URL(address + path, encoded=True)
            async with http.post(url, data=body_of(rng, place, path), headers=headers) as answer:
                told = await answer.text()
    except TimeoutError:
        if after == PATIENCE:
            raise BrokenPromiseError(f"{path} was not answered in {PATIENCE:g} s") from None
        return "given up"
    except (ClientError, ValueError) as error:
        return f"not sent: {type(error).__name__}"
    if SECRET in told or "Traceback" in told or "root:x:" in told:
        raise BrokenPromiseError(f"{path} told {told[:300]!r}")
    if answer.status >= 500:
        raise BrokenPromiseError(f"{path} was answered with {answer.status}: {told[:300]!r}")
    return "answered" if answer.status < 400 else "refused"


def gateway(rng: random.Random, place: Path) -> str:
    """Some such clients at once, an honest one beside them, and one after them."""
    import aiohttp

    from rolltree.gateway.gateway import Gateway
    from rolltree.gateway.server import serving
    from tests.gateway.policies import letters

    watched(place)

    async def honest(http: Any, address: str, name: str) -> None:
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "seed": 1}
        async with asyncio.timeout(PATIENCE), http.post(f"{address}/s/{name}/v1/chat/completions", json=body) as answer:
            if answer.status != 200:
                raise BrokenPromiseError(f"an honest client was answered with {answer.status}")

    async def work() -> list[str]:
        engine = letters()
        served = Gateway(engine, "tiny")
        async with serving(served) as (address, _), aiohttp.ClientSession() as http:
            asked = (_ask(http, address, random.Random(rng.random()), place) for _ in range(CALLS))
            _, *got = await asyncio.gather(honest(http, address, "honest"), *asked)
            await honest(http, address, "after")
        for session in served.sessions.values():
            held = sum(len(n) for n in session.tree if n.trainable)
            if held != session.record.sampled:
                raise BrokenPromiseError(f"{session.name} sampled {session.record.sampled} tokens and holds {held}")
        await engine.close()
        return [str(one) for one in got]

    got = asyncio.run(work())
    return "all answered" if "given up" not in got else "answered, some had hung up"


Headers = dict[str, str]
PLACES = ("/s/canary/reward", "/s/canary/end", "/s/canary/v1/chat/completions", "/v1/completions", "/sessions")
ELSEWHERE = (
    "evil.example",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "169.254.169.254",
    "",
    "[::",
    "a b",
    "é",
)
KINDS = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a", "text/json", ";", "*/*",
         "application/jsonp", "text/plain; application/json", "\x00", "application/json; charset=utf-16")  # fmt: skip
ENCODINGS = ("gzip", "deflate", "br", "zstd", "rot13", "gzip, gzip", "\x01", "é")
CALL = GOOD["chat/completions"]
SENT = json.dumps(CALL).encode()


def _somewhere(rng: random.Random) -> tuple[str, bytes]:
    path = rng.choice(PLACES)
    return path, json.dumps(good_at(path)).encode()


def _foreign(rng: random.Random) -> tuple[str, Headers, bytes]:
    where = rng.choice(ELSEWHERE)
    path, body = _somewhere(rng)
    named = {"Origin": rng.choice((f"http://{where}", f"https://{where}:1", "null", where))}
    headers = rng.choice((named, {"Host": where or "evil.example"}, named | {"Host": "localhost"}))
    return path, headers, body


def _kind(rng: random.Random) -> tuple[str, Headers, bytes]:
    path, body = _somewhere(rng)
    return path, {"Content-Type": rng.choice(KINDS)}, body


def _encoding(rng: random.Random) -> tuple[str, Headers, bytes]:
    path, good = _somewhere(rng)
    body = rng.choice((rng.randbytes(rng.randint(1, 300)), gzip.compress(good)[: rng.randint(1, 10)], good))
    return path, {"Content-Encoding": rng.choice(ENCODINGS)}, body


def _size(rng: random.Random) -> tuple[str, Headers, bytes]:
    much = rng.choice((
        b'{"a": [' + b"[]," * 200_000 + b"1]}", b'{"a": [1' + b",1" * 1_200_000 + b"]}", b"[" * rng.randint(1, 100_000),
        b'{"metadata": ' + b"[" * 70 + b"]" * 70 + b"," + SENT[1:], b'"' + b"a" * 9 * 2**20 + b'"',
        json.dumps({"messages": CALL["messages"] * 5001}).encode(),
        json.dumps({**CALL, "tools": [{"type": "function", "function": {"name": "f"}}] * 1001}).encode(),
    ))  # fmt: skip
    if rng.random() < 0.3:
        return PLACES[2], {"Content-Encoding": "gzip"}, gzip.compress(much)
    return PLACES[2], {}, much


def _name(rng: random.Random) -> tuple[str, Headers, bytes]:
    name = rng.choice((0, 1, True, [], {}, "a" * 201, "\x00", "\ud800", "\u202e", "a\nb", "\x7f"))
    field = rng.choice(("session", "item"))
    return "/sessions", {}, json.dumps({field: name or "a" * 300}).encode("utf-8", "surrogatepass")


def _field(rng: random.Random) -> tuple[str, Headers, bytes]:
    name = rng.choice(
        ("response_format", "tool_choice", "logit_bias", "maxtokens", "guided_json", "\u202e", "", "x" * 5000)
    )
    value = rng.choice(({"type": "json_object"}, "required", 1, [1], {"type": "any"}, True))
    body = json.dumps({**CALL, "tools": [{"type": "function", "function": {"name": "f"}}], name: value}).encode()
    return PLACES[2], {}, body


def _model(rng: random.Random) -> tuple[str, Headers, bytes]:
    odd = [one for one in (*VALUES, *TEXTS) if one is not None]
    return PLACES[2], {}, json.dumps({**CALL, "model": rng.choice(odd)}).encode()


WRONG: tuple[Callable[[random.Random], tuple[str, Headers, bytes]], ...] = (
    _foreign, _foreign, _kind, _encoding, _size, _name, _field, _model,
)  # fmt: skip
"""Each makes a request that must be refused."""


def _request(path: str, headers: Headers, body: bytes) -> bytes:
    whole = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
    lines = [f"POST {path} HTTP/1.1", "Connection: close", *(f"{name}: {value}" for name, value in whole.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _broken(rng: random.Random) -> bytes:
    """What is no HTTP any more, or other HTTP. It is for nothing that is there, for it may be whole after all."""
    raw = _request("/nothing", {"Origin": "http://127.0.0.1"}, SENT)
    at = rng.randrange(len(raw) - len(SENT) - 2)
    odd = rng.choice((b"\x00", b"\r\n", b"\xff" * 3, b"a" * 9000, b": ", b"", b"\n\n", b"HTTP/1.1"))
    return raw[:at] + odd + raw[at + rng.randint(0, 8) :]


async def _sent(port: int, raw: bytes, patience: float = PATIENCE) -> bytes:
    """What comes back; nothing where the request never became whole."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(raw)
        async with asyncio.timeout(patience):
            return await reader.read()
    except TimeoutError:
        if patience < PATIENCE:
            return b""
        raise BrokenPromiseError(f"{raw[:200]!r} was not answered in {PATIENCE:g} s") from None
    except ConnectionError:
        return b""
    finally:
        writer.close()


def _check(raw: bytes, got: bytes) -> str:
    head, _, body = got.partition(b"\r\n\r\n")
    if not head:
        return "hung up"
    status = int(head.split()[1])
    if not 400 <= status < 500:
        raise BrokenPromiseError(f"{raw[:300]!r} was answered with {got[:300]!r}")
    if status == 417:  # aiohttp's own word on Expect
        return "refused"
    said = json.loads(body)["error"]["message"]
    if "\n" in said or "Traceback" in said or not said or len(said) > 1000:
        raise BrokenPromiseError(f"{raw[:300]!r} was told {said[:300]!r}")
    return "refused"


class _Lines(logging.Handler):
    """Counts what is logged, and keeps what is more than a line."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.count, self.long = 0, list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        if record.exc_info or "\n" in record.getMessage():
            self.long.append(self.format(record))


def requests(rng: random.Random, place: Path) -> str:
    """A dozen requests at once that must all be refused, beside a session that must stay as it is."""
    from rolltree.gateway.gateway import Gateway
    from rolltree.gateway.server import serving
    from tests.gateway.policies import letters

    del place

    async def work() -> list[str]:
        engine = letters()
        served = Gateway(engine, "tiny")
        canary = served.open("canary")
        made = [_broken(rng) if rng.random() < 0.25 else _request(*rng.choice(WRONG)(rng)) for _ in range(CALLS)]
        async with serving(served) as (address, _):
            port = int(address.rpartition(":")[2])
            answers = await asyncio.gather(*(_sent(port, raw, 1.0 if b"/nothing" in raw else PATIENCE) for raw in made))
            told = [_check(raw, got) for raw, got in zip(made, answers, strict=True)]
            if canary.ended or canary.record.calls or set(served.sessions) != {"canary"}:
                raise BrokenPromiseError(f"sessions {sorted(served.sessions)}, canary {canary.ended!r}")
            good = await _sent(port, _request(CHAT, {}, SENT))
            if b" 200 " not in good[:20]:
                raise BrokenPromiseError(f"an honest client was answered with {good[:300]!r}")
        await engine.close()
        return told

    lines, loggers = _Lines(), [logging.getLogger(name) for name in ("rolltree.gateway", "aiohttp", "asyncio")]
    for logger in loggers:
        logger.addHandler(lines)
    try:
        told = asyncio.run(work())
    finally:
        for logger in loggers:
            logger.removeHandler(lines)
    if lines.long or lines.count > CALLS:
        raise BrokenPromiseError(f"{lines.count} lines for {CALLS} requests: {lines.long[:1]}")
    return "all refused" if "hung up" not in told else "refused, some were no requests"


ATTACKS = (
    Attack("gateway", "odd calls at the gateway's endpoint, a dozen a case", gateway, 2, 60),
    Attack("gateway-requests", "requests the gateway must refuse, a dozen a case", requests, 4, 100),
)
