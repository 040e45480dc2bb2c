"""What an engine leaves of vLLM when it is closed; no vLLM is needed for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from rolltree.engine.vllm.backend import VllmBackend


class Emptied:
    """As vLLM's engine: deleting it shuts it down, with what its module holds."""

    def __init__(self) -> None:
        self.model_config = SimpleNamespace(get_vocab_size=lambda: 8, max_model_len=16)
        self.module = SimpleNamespace(stop=list[int])
        self.downs = 0

    def shutdown(self) -> None:
        self.module.stop()
        self.downs += 1

    def __del__(self) -> None:
        self.shutdown()


def test_vllm_is_shut_down_once_and_not_again_among_emptied_modules() -> None:
    llm = Emptied()
    backend = VllmBackend(llm, 8, 1, of_sampling=False, version=0)
    asyncio.run(backend.close())
    assert llm.downs == 1
    llm.module.stop = None
    llm.__del__()
    assert llm.downs == 1
