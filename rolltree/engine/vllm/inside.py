"""A vLLM that somebody else runs in this process (`vllm.LLM`), as TRL does beside its trainer: stepped by our requests.

`LLM.generate` answers when all requests are over. The engine within it (`LLM.llm_engine`) takes requests one by one and
gives tokens at every step, so rollouts can be streamed, stopped and added. Steps run in this thread: a card's device
belongs to a thread, and there is no other process that could go on meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import Any

from rolltree.engine.protocol import Codec, EngineError
from rolltree.engine.segments import SegmentEngine, SegmentPatience
from rolltree.engine.vllm.backend import VllmBackend


def inside(llm: Any, codec: Codec, version: int) -> SegmentEngine:
    """An engine on a running `vllm.LLM`, which keeps its weights and its life: closing the engine ends requests alone.

    The log-probs it hands out are those that it was started to hand out (`logprobs_mode`).
    """
    config = llm.llm_engine.model_config
    said = str(config.logprobs_mode)
    if not said.endswith("_logprobs"):
        raise EngineError(f"this vLLM tells {said}, not log-probs; start it with logprobs_mode='processed_logprobs'")
    most = codec.vocab_size if config.max_logprobs < 0 else min(int(config.max_logprobs), codec.vocab_size)
    backend = VllmBackend(
        InsideCalls(llm), codec.vocab_size, most, of_sampling=said == "processed_logprobs", version=version,
        updates=False,
    )  # fmt: skip
    return SegmentEngine(backend, codec, patience=SegmentPatience(tries=1))


class InsideCalls:
    """The calls of vLLM's asynchronous engine that a backend makes, on the engine within an `LLM`."""

    def __init__(self, llm: Any) -> None:
        self._engine = llm.llm_engine
        self.model_config = self._engine.model_config
        self._flying: dict[str, Any] = {}
        """Who waits for each request's answers."""
        self._stepping: asyncio.Task[None] | None = None

    async def add_request(self, name: str, prompt: Any, params: Any, lora_request: Any = None) -> Any:
        """Begin a request; what is returned gets its answers."""
        from vllm.v1.engine.output_processor import RequestOutputCollector

        params.stream_interval = 1
        self._engine.add_request(name, prompt, params, lora_request=lora_request)
        self._flying[name] = answers = RequestOutputCollector(params.output_kind, name)
        if self._stepping is None or self._stepping.done():
            self._stepping = asyncio.get_running_loop().create_task(self._steps())
        return answers

    async def abort(self, name: str) -> None:
        """End a request; tokens that nobody has taken yet become its last answer."""
        answers = self._flying.pop(name, None)
        if answers is None:
            return
        self._engine.abort_request([name])
        if answers.output is not None and not isinstance(answers.output, Exception):
            answers.output.finished = True
            answers.output.outputs[0].finish_reason = "abort"

    async def update_weight_version(self, version: str) -> None:
        """Label the weights."""
        self._engine.set_weight_version(version)

    async def get_weight_version(self) -> str:
        """Their label."""
        return str(self._engine.get_weight_version())

    def shutdown(self) -> None:
        """End requests; who started vLLM ends it."""
        if self._flying:
            self._engine.abort_request(list(self._flying))
            self._flying.clear()

    async def _steps(self) -> None:
        try:
            while self._flying:
                for out in self._engine.step():
                    answers = self._flying.get(out.request_id)
                    if answers is not None:
                        answers.put(out)
                        if out.finished:
                            del self._flying[out.request_id]
                # Whoever waits takes its tokens, stops, and asks for more before the next step.
                await asyncio.sleep(0)
        except Exception as error:  # every request would wait for ever
            for answers in self._flying.values():
                answers.put(EngineError(f"vLLM failed: {type(error).__name__}: {error}"))
            self._flying.clear()
