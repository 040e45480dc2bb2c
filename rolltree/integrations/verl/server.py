"""verl's model server as an engine: token ids in, token ids out, log-probs of the distribution sampled from."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

import numpy as np

from rolltree.engine.protocol import (
    Caches,
    Capabilities,
    Codec,
    EngineError,
    Request,
    Sample,
    Sampling,
    Scored,
    named,
    stop_text,
)
from rolltree.engine.run import ToldRun
from rolltree.engine.samples import nothing
from rolltree.tree.node import Array, Finish

FOLLOWS = 16
"""Characters of decoded text in which a stop string must end, counted from the end of a sample."""


class ServerEngine:
    """Extends prefixes through verl's `LLMServerClient`. Weights are verl's business, so they are never set from here.

    The server keeps requests with one affinity together, where prefixes are cached. A run that is stopped is given up
    and what it had is lost, so `abort` is not offered; neither are scoring, entropies or streams.
    """

    def __init__(self, client: Any, codec: Codec, max_context: int, defaults: Mapping[str, Any] | None = None) -> None:
        self.codec = codec
        """verl's tokenizer."""
        self.capabilities = Capabilities(frozenset({"greedy", "versions", "shared-prefix"}), max_context)
        """Sampling, and the version of the weights."""
        self.version = 0
        """verl's step, as the server last reported it."""
        self._client, self._defaults = client, dict(defaults or {})

    def submit(self, request: Request) -> ServerRun:
        """Ask the server for a continuation."""
        room = self.capabilities.max_context - len(request.prefix)
        if room < 1:
            raise EngineError(
                f"a prefix of {len(request.prefix)} tokens leaves no room in a context of "
                f"{self.capabilities.max_context}; raise rollout.max_model_len or shorten the prompts"
            )
        if request.want or request.sampling.hook is not None:
            raise EngineError(f"verl's server reports no {', '.join(request.want) or 'hooks'}; choose another strategy")
        return ServerRun(request, self._ask(request, room))

    async def score(self, tokens: Array, start: int, want: frozenset[str] = frozenset()) -> Scored:
        """Not offered: verl scores in its trainer."""
        raise EngineError("verl's server cannot score given tokens; choose a strategy that forces none")

    async def pause(self) -> None:
        """verl pauses its servers itself."""

    async def update_weights(self, weights: Any, version: int, *, caches: Caches = "recompute") -> None:
        """Refused: verl hands weights to its servers itself."""
        raise EngineError("verl updates the weights of its servers itself; do not set them through this engine")

    async def resume(self) -> None:
        """verl resumes its servers itself."""

    async def close(self) -> None:
        """The server is verl's."""

    async def _ask(self, request: Request, room: int) -> Sample:
        sampling = request.sampling
        told = await self._client.generate(
            request.affinity or uuid4().hex, prompt_ids=[int(i) for i in request.prefix],
            sampling_params=self._defaults | _parameters(sampling, room),
        )  # fmt: skip
        ids = np.asarray(told.token_ids, np.int32)
        if told.log_probs is None or len(told.log_probs) != len(ids):
            raise EngineError("verl's server reported no log-probs; set rollout.calculate_log_probs=True")
        sampling_logprob = np.asarray(told.log_probs, np.float32)
        if sampling.temperature == 0:
            sampling_logprob = np.full(len(ids), np.nan, np.float32)
        # The distribution sampled from is the policy's own where nothing was changed; verl's trainer computes the
        # other anew.
        plain = (sampling.temperature, sampling.top_p, sampling.top_k) == (1.0, 1.0, 0)
        version = told.extra_fields.get("global_steps")
        self.version = max(self.version, int(version or 0))
        finish, by = self._finish(ids, told.stop_reason, sampling)
        return Sample(
            ids, sampling_logprob if plain else np.full(len(ids), np.nan, np.float32), sampling_logprob,
            np.full(len(ids), -1 if version is None else int(version), np.int32), finish, by,
        )  # fmt: skip

    def _finish(self, ids: Array, reason: str | None, sampling: Sampling) -> tuple[Finish, str]:
        """Why it ended, read from what was written: the server only says whether it was aborted."""
        if reason == "aborted":
            return "abort", ""
        ends = len(ids) and int(ids[-1]) == self.codec.eos_id and not sampling.ignore_eos
        if ends and self.codec.eos_id not in named(self.codec, sampling.stop):
            return "eos", ""
        if len(ids) and int(ids[-1]) in sampling.stop_ids:
            return "stop", ""
        tail = stop_text(self.codec, ids, sampling.stop)[-FOLLOWS - max(map(len, sampling.stop), default=0) :]
        for stop in sampling.stop:
            if stop in tail:
                return "stop", stop
        return "length", ""


class ServerRun(ToldRun):
    """A request on its way; it comes whole or, given up, not at all."""

    def __init__(self, request: Request, answer: Coroutine[Any, Any, Sample]) -> None:
        super().__init__(request)
        self._asked = asyncio.ensure_future(answer)
        self._asked.add_done_callback(self._hear)

    def _halt(self, finish: Finish) -> None:
        with suppress(RuntimeError):  # its loop is closed already
            self._asked.cancel()
            self.settle(nothing(finish))

    def _hear(self, asked: asyncio.Future[Sample]) -> None:
        if asked.cancelled():
            self.settle(nothing("abort"))
        elif (error := asked.exception()) is not None:
            self.settle(error)
        else:
            self.end(asked.result(), asked.result())


def _parameters(sampling: Sampling, room: int) -> dict[str, Any]:
    """verl's sampling parameters (vLLM's words)."""
    told: dict[str, Any] = {
        "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k or -1,
        "max_tokens": min(sampling.max_tokens, room), "logprobs": True, "ignore_eos": sampling.ignore_eos,
    }  # fmt: skip
    if sampling.stop:
        told |= {"stop": list(sampling.stop), "include_stop_str_in_output": True}
    if sampling.stop_ids:
        told["stop_token_ids"] = list(sampling.stop_ids)
    if sampling.seed is not None:
        told["seed"] = sampling.seed % 2**63
    return told
