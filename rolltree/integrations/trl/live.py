"""The engine that writes for a TRL trainer: an embedded one that follows its weights, or the vLLM that TRL feeds."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from rolltree.engine.http import connect
from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import Engine, Sampling
from rolltree.engine.vllm.inside import inside
from rolltree.integrations.errors import AdaptError
from rolltree.integrations.trl.whole import unwrapped, whole_model, whole_weights
from rolltree.policy.codec import HFCodec
from rolltree.policy.language import core_of


class LiveEngine:
    """One engine for one trainer.

    An embedded one gets the weights when the trainer's step has moved on, whole also where FSDP or DeepSpeed has cut
    them. With `use_vllm` and `vllm_mode="server"` it is TRL's server, with "colocate" the vLLM in the trainer's
    process. TRL gives either the weights, gathered as well, before it asks for rollouts.
    """

    def __init__(self) -> None:
        self._engine: LocalEngine | None = None
        self._owner: Any = None

    @asynccontextmanager
    async def current(self, trainer: Any) -> AsyncGenerator[Engine]:
        """The engine with the trainer's present weights, whose version is the trainer's global step."""
        if not getattr(trainer.args, "use_vllm", False):
            yield await self._embedded(trainer)
            return
        # A generation has an event loop of its own, and connections belong to a loop.
        step, codec = int(trainer.state.global_step), _codec(trainer, core_of(unwrapped(trainer)))
        if trainer.args.vllm_mode == "colocate":
            with awake(trainer.vllm_generation) as llm:
                beside = inside(llm, codec, step)
                try:
                    yield beside
                finally:
                    await beside.close()
            return
        served = await connect(_server(trainer.args), codec, version=step)
        try:
            yield served
        finally:
            await served.close()

    async def _embedded(self, trainer: Any) -> Engine:
        step = int(trainer.state.global_step)
        engine = self._engine if self._owner is trainer else None
        if engine is not None and engine.version == step:
            return engine
        # Every process gets here at the same steps, as gathering needs.
        weights = whole_weights(trainer)
        if engine is None or engine.version > step:
            if self._engine is not None:
                await self._engine.close()
            core = whole_model(trainer, weights)
            # Versions only grow, and the weights of this step are handed over below.
            engine = LocalEngine(
                core, _codec(trainer, core), device=str(trainer.accelerator.device), dtype=core.dtype, version=step - 1
            )
            self._engine, self._owner = engine, trainer
        await engine.update_weights(weights, step)
        return engine


def sampling_of(trainer: Any) -> Sampling:
    """TRL's sampling settings as ours."""
    args = trainer.args
    return Sampling(temperature=float(args.temperature), top_p=float(args.top_p), top_k=int(args.top_k or 0))


def check_settings(trainer: Any) -> None:
    """Refuse sampling settings that only TRL's own generation has."""
    args = trainer.args
    if getattr(args, "min_p", None):
        raise AdaptError(f"min_p={args.min_p} is not supported in Rolltree's rollouts; leave it at None")
    if getattr(args, "repetition_penalty", 1.0) != 1.0:
        raise AdaptError(
            f"repetition_penalty={args.repetition_penalty} is not supported in Rolltree's rollouts; leave it at 1.0"
        )
    if getattr(args, "use_vllm", False) and args.vllm_mode == "colocate" and args.vllm_tensor_parallel_size > 1:
        raise AdaptError(
            f"vllm_tensor_parallel_size={args.vllm_tensor_parallel_size} cuts the vLLM beside the trainer over several "
            "processes, which would all have to grow the same trees; set it to 1, or vllm_mode='server'"
        )


@contextmanager
def awake(generation: Any) -> Generator[Any]:
    """TRL's vLLM beside the trainer; where TRL lets it sleep, awake for as long as this lasts and asleep behind it."""
    llm, sleeps = generation.llm, bool(generation.enable_sleep_mode)
    if sleeps:
        # Its deepest sleep forgets the weights, and TRL gives them only where a step has passed.
        if generation._llm_weights_sleeping:
            generation.sync_weights()
        llm.wake_up(tags=["kv_cache"])
    try:
        yield llm
    finally:
        if sleeps:
            llm.sleep(level=2)
            generation._llm_weights_sleeping = True


def _server(args: Any) -> str:
    return str(args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}")


def _codec(trainer: Any, core: Any) -> HFCodec:
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    return HFCodec(tokenizer, int(core.config.vocab_size))
