"""Connecting: what the server serves is found out by asking it, and refused in a sentence where it cannot do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rolltree.engine.http.backend import HttpBackend, Served, renewed, told_version
from rolltree.engine.http.client import Client, Wire
from rolltree.engine.http.completions import PATH, named_by_id, read_of, reading_of
from rolltree.engine.protocol import Codec, EngineError
from rolltree.engine.segments import Backend, BrokenError, Reach, SegmentEngine, SegmentPatience, SeveralBackends

SMALL = 1024
"""Largest vocabulary whose whole distribution is asked for."""
USUAL = 20
"""Alternatives servers report unless told otherwise."""
MOVED = 0.05
"""Change of the best log-prob above which a server's log-probs follow the temperature."""


async def connect(
    address: str, codec: Codec, *, model: str = "", version: int = 0, wire: Wire | None = None,
    patience: SegmentPatience | None = None, seed: int | None = None,
) -> SegmentEngine:  # fmt: skip
    """An engine on an OpenAI-compatible server, for instance http://127.0.0.1:8000, or on several, parted by commas.

    `codec` is the policy's: its ids are sent as they are. `model` chooses among several served models. `version` is
    what tokens are marked with until an update; it is the server's own where the server tells (vLLM with
    VLLM_SERVER_DEV_MODE=1, which also takes new weights if it sees the same files).
    """
    try:
        import aiohttp  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError:
        raise EngineError("talking to a server needs aiohttp; install it with: pip install 'rolltree[http]'") from None
    addresses = [a.strip().removesuffix("/").removesuffix("/v1") for a in address.split(",") if a.strip()]
    if not addresses or len(set(addresses)) < len(addresses):
        raise EngineError(
            f"{address!r} must name each server once, parted by commas: http://HOST:8000,http://HOST:8001"
        )
    tried = await asyncio.gather(
        *(_connected(one, codec, model, version, wire or Wire()) for one in addresses), return_exceptions=True
    )
    try:
        backend = _one(tried)
    except BaseException:
        await asyncio.gather(*(backend.close() for backend in tried if isinstance(backend, HttpBackend)))
        raise
    return SegmentEngine(backend, codec, patience=patience, seed=seed)


def _one(tried: Sequence[HttpBackend | BaseException]) -> Backend:
    """The servers as one backend; raises what went wrong with any of them."""
    backends: list[HttpBackend] = []
    for found in tried:
        if isinstance(found, BaseException):
            raise found
        backends.append(found)
        backends[0].check_same_weights(found)
    return backends[0] if len(backends) == 1 else SeveralBackends(backends)


async def _connected(address: str, codec: Codec, model: str, version: int, wire: Wire) -> HttpBackend:
    client = Client(address, wire)
    try:
        try:
            served = await _served(client, codec, model)
            updates = await client.get("/weight_info") is not None
            told = await told_version(client) if updates else None
        except BrokenError as error:
            raise EngineError(
                f"no server answers at {client.address} ({error}); start one, for instance: vllm serve MODEL"
            ) from error
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise EngineError(
                f"the server at {client.address} answers in a form of its own ({type(error).__name__}: {error}); is it "
                "an OpenAI-compatible server?"
            ) from error
        served = replace(served, reach=replace(served.reach, updates=updates))
        return HttpBackend(client, served, version if told is None else told)
    except BaseException:
        await client.close()
        raise


async def _served(client: Client, codec: Codec, model: str) -> Served:
    name, context = await _model(client, model)
    probe = _probe(codec)
    answer = await _completion(client, name, probe, 1, temperature=1.0)
    if not answer.get("token_ids"):
        raise EngineError(
            f"the server at {client.address} does not return token ids (return_token_ids); "
            "serve with vLLM 0.10.2 or SGLang 0.5.16, or newer"
        )
    if not (answer.get("logprobs") or {}).get("token_logprobs"):
        raise EngineError(f"the server at {client.address} returns no log-probs; Rolltree trains on them")
    alternatives = await _alternatives(client, name, probe, codec.vocab_size)
    of_sampling = await _follows_temperature(client, name, probe)
    reach = Reach(codec.vocab_size, context, alternatives, of_sampling, scores=await _scores(client, name, probe))
    return await renewed(client, Served(name, reach, tuple(probe), ()))


async def _model(client: Client, wanted: str) -> tuple[str, int]:
    listed = {str(m["id"]): m for m in ((await client.get("/v1/models")) or {}).get("data", [])}
    if not listed:
        raise EngineError(f"{client.address} serves no models at /v1/models; is it an OpenAI-compatible server?")
    if wanted and wanted not in listed:
        raise EngineError(f"the server at {client.address} does not serve {wanted!r}; it serves {', '.join(listed)}")
    name = wanted or next(iter(listed))
    context = listed[name].get("max_model_len")
    if not context:
        raise EngineError(f"the server at {client.address} does not say the context of {name} (max_model_len)")
    return name, int(context)


def _probe(codec: Codec) -> list[int]:
    """Ids across the vocabulary, the last one included: a server with a smaller one refuses it."""
    v = codec.vocab_size
    return [i for i in (v - 1, *(v * k // 7 for k in range(1, 7))) if i != codec.eos_id]


async def _completion(client: Client, model: str, probe: list[int], logprobs: int, *, temperature: float) -> Any:
    body = reading_of(model, probe, logprobs) | {"echo": False, "temperature": temperature, "seed": 1}
    try:
        return (await client.post(PATH, body))["choices"][0]
    except EngineError as error:
        if "vocab" in str(error) and str(probe[0]) in str(error):
            raise EngineError(
                f"the server at {client.address} has a smaller vocabulary than the policy's {probe[0] + 1} tokens, so "
                f"it serves another model ({model}); serve the policy's"
            ) from error
        raise


async def _alternatives(client: Client, model: str, probe: list[int], vocab: int) -> int:
    for count in (vocab, USUAL, 5, 1) if vocab <= SMALL else (USUAL, 5, 1):
        try:
            row = (await _completion(client, model, probe, count, temperature=1.0))["logprobs"]["top_logprobs"][0]
        except (EngineError, KeyError, TypeError):
            continue
        if named_by_id(row) and len(row) >= min(count, vocab):
            return min(count, vocab)
    return 0


async def _follows_temperature(client: Client, model: str, probe: list[int]) -> bool:
    """Whether log-probs are of the distribution sampled from: at temperature 2, which servers still allow, the best is
    lower."""
    best = [
        max((await _completion(client, model, probe, 1, temperature=t))["logprobs"]["top_logprobs"][0].values())
        for t in (1.0, 2.0)
    ]
    return abs(best[0] - best[1]) > MOVED


async def _scores(client: Client, model: str, probe: list[int]) -> bool:
    try:
        read_of(await client.post(PATH, reading_of(model, probe, 0)), probe, 1, 0)
    except (EngineError, KeyError):
        return False
    return True
