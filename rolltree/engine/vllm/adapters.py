"""Adapters alone to vLLM, by its own LoRA interface: one adapter, replaced in place by each version."""

from __future__ import annotations

from typing import Any

from rolltree.engine.protocol import EngineError
from rolltree.engine.segments.weights import folder_of
from rolltree.policy.lora import WEIGHTS
from rolltree.policy.publish import AdaptedWeights

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Largest ranks that vLLM makes room for."""


def room_for(rank: int) -> dict[str, Any]:
    """vLLM's settings for one adapter of this rank."""
    room = next((most for most in RANKS if most >= rank), None)
    if rank < 1 or room is None:
        raise EngineError(f"vLLM serves adapters of rank 1 to {RANKS[-1]}, not {rank}; train adapters of such a rank")
    return {"enable_lora": True, "max_loras": 1, "max_cpu_loras": 1, "max_lora_rank": room}


class Adapters:
    """The one adapter that a running vLLM writes with."""

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self.request: Any = None
        """What every request to vLLM carries; None before the first adapter, when the model writes as it was loaded."""

    async def load(self, weights: Any) -> None:
        """Let vLLM take the adapters of these weights in place of those it has."""
        from vllm.lora.request import LoRARequest

        if not isinstance(weights, AdaptedWeights):
            raise EngineError(
                f"this vLLM was started to take adapters alone (lora) and was given {type(weights).__name__}; give it "
                "the weights of a policy with adapters, or start it without lora"
            )
        with folder_of(weights.adapters, WEIGHTS) as place:
            weights.config.save_pretrained(str(place))
            # The name stays, because vLLM keeps caches by it; which of them may be read, salts say.
            try:
                await self._llm.add_lora(LoRARequest("rolltree", 1, str(place), load_inplace=True))
            except Exception as error:
                raise EngineError(f"vLLM did not take the adapters: {error}") from error
            self.request = LoRARequest("rolltree", 1, str(place))
