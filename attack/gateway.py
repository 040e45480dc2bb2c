"""Clients that misbehave at the gateway's endpoint: odd bodies, names and headers, calls that are given up.

Promised: each call is answered with its own fault in a sentence, or with a reply; an honest client beside them is
served; what the sessions hold is what was sampled, and nothing of the host comes out.
"""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

from attack.escapes import SECRET, watched
from attack.frame import Attack, BrokenPromiseError
from attack.odd import TEXTS, VALUES, broken_json

CALLS = 12
PATIENCE = 120.0
"""Seconds after which a call hangs."""
PATHS = ("chat/completions", "completions", "responses", "messages")
NAMES = ("a", "b", "..", "%2e%2e", "%00", "é", "a" * 300, "a%2fb", "canary", "-")
FIELDS = ("messages", "prompt", "input", "max_tokens", "temperature", "top_p", "stop", "n", "seed", "stream", "tools",
          "logprobs", "top_logprobs", "system", "response_format", "tool_choice", "model", "user")  # fmt: skip
GOOD = {
    "messages": [{"role": "user", "content": "hi"}],
    "prompt": "hi",
    "input": "hi",
    "max_tokens": 6,
    "model": "tiny",
}
ROLES = ("user", "system", "assistant", "tool", "root", "", 7)


def body_of(rng: random.Random, place: Path) -> bytes:
    """A good body with something gone wrong, or anything."""
    odd = (*VALUES, *TEXTS, f"file://{place}/canary", {"$ref": f"{place}/canary"}, [{"type": "image_url"}])
    said: dict[str, Any] = dict(GOOD)
    for _ in range(rng.randint(0, 3)):
        said[rng.choice(FIELDS)] = rng.choice(odd)
    if rng.random() < 0.4:
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
    headers = {"Content-Type": rng.choice(("application/json", "text/plain", ""))}
    after = 0.02 * rng.random() if rng.random() < 0.2 else PATIENCE
    from aiohttp import ClientError
    from yarl import URL

    try:
        async with asyncio.timeout(after):
            url = URL(address + path, encoded=True)
            async with http.post(url, data=body_of(rng, place), headers=headers) as answer:
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


ATTACKS = (Attack("gateway", "odd calls at the gateway's endpoint, a dozen a case", gateway, 2, 60),)
