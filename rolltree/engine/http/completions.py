"""The completions request and its answers, in token ids.

vLLM and SGLang both answer `return_token_ids` with the ids they sampled. Alternatives are read where the server names
them by id (vLLM's `return_tokens_as_token_ids`); text is never turned into ids here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rolltree.engine.protocol import EngineError
from rolltree.engine.segments.wire import Alternatives, Piece, SegmentRead, SegmentRequest

PATH = "/v1/completions"
_ID = "token_id:"


def body_of(model: str, ask: SegmentRequest, *, salted: bool) -> dict[str, Any]:
    """A streamed request. Every knob is sent: servers fill gaps from the model's own generation defaults."""
    s = ask.sampling
    body: dict[str, Any] = {
        "model": model, "prompt": list(ask.tokens), "max_tokens": ask.most, "stream": True,
        "stream_options": {"include_usage": True}, "seed": ask.seed,
        "temperature": s.temperature, "top_p": s.top_p, "top_k": s.top_k or -1, "min_p": 0.0,
        "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
        "stop_token_ids": list(ask.ends), "ignore_eos": True, "skip_special_tokens": False,
        "logprobs": max(1, ask.alternatives), "return_token_ids": True, "return_tokens_as_token_ids": True,
    }  # fmt: skip
    if salted:
        body["cache_salt"] = ask.salt
    return body


def reading_of(model: str, tokens: Sequence[int], alternatives: int) -> dict[str, Any]:
    """A request that echoes the prompt with its log-probs."""
    return {
        "model": model, "prompt": list(tokens), "max_tokens": 1, "temperature": 1.0, "top_p": 1.0, "top_k": -1,
        "min_p": 0.0, "echo": True, "logprobs": max(1, alternatives), "ignore_eos": True, "return_token_ids": True,
        "return_tokens_as_token_ids": True, "skip_special_tokens": False,
    }  # fmt: skip


def piece_of(event: Any, alternatives: int) -> Piece:
    """What one event of a stream brings."""
    choices = event.get("choices") or []
    if not choices:
        return Piece((), (), prefilled=-_cached(event.get("usage") or {}))
    choice = choices[0]
    ids = choice.get("token_ids") or []
    logprobs = choice.get("logprobs") or {}
    finish = choice.get("finish_reason") or ""
    if not ids and choice.get("text") and choice.get("token_ids") is None:
        raise EngineError("the server sends text without token ids; serve with vLLM 0.10.2 or SGLang 0.5.16, or newer")
    best = [ranked(row, alternatives) for row in (logprobs.get("top_logprobs") or [])] if alternatives else ()
    return Piece(ids, logprobs.get("token_logprobs") or (), best, finish=finish)


def brings_tokens(event: Any) -> bool:
    """Whether an event of a stream brings tokens."""
    choices = event.get("choices") or []
    return bool(choices and choices[0].get("token_ids"))


def room_for(tokens: int, alternatives: int) -> int:
    """Most bytes in which a server may tell of so many tokens; several times what any of them needs."""
    return (1 << 20) + tokens * (4096 + 256 * max(1, alternatives))


def read_of(answer: Any, tokens: Sequence[int], start: int, alternatives: int) -> SegmentRead:
    """Log-probs of tokens[start:] out of an echo."""
    logprobs = answer["choices"][0].get("logprobs") or {}
    values: list[Any] = list(logprobs.get("token_logprobs") or ())[start : len(tokens)]
    if len(values) != len(tokens) - start or None in values:
        raise EngineError("the server echoes a prompt without its log-probs; it cannot score")
    rows = (logprobs.get("top_logprobs") or [])[start : len(tokens)] if alternatives else ()
    return SegmentRead(values, [ranked(row, alternatives) for row in rows])


def ranked(row: dict[str, float], count: int) -> Alternatives:
    """Alternatives by id, most likely first; the sampled token stands among them and goes last where it is none."""
    best = sorted(((-p, int(name.removeprefix(_ID))) for name, p in row.items()), key=lambda x: x[0])[:count]
    return [i for _, i in best], [-p for p, _ in best]


def named_by_id(row: dict[str, float]) -> bool:
    """Whether a server names alternatives by id."""
    return bool(row) and all(name.startswith(_ID) for name in row)


def _cached(usage: dict[str, Any]) -> int:
    """Prefix tokens found in the server's cache; 0 where it does not say (vLLM: --enable-prompt-tokens-details)."""
    return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
