"""New weights to vLLM by vLLM's own weight transfer: from memory to memory, without a file.

vLLM's side is chosen when it starts (`weight_transfer_config`); ours is its trainer engine of the same name, which asks
for the weights and for four calls to vLLM. Both are vLLM's code; this gives it the policy's tensors and an event loop.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from rolltree.engine.protocol import EngineError


def ipc() -> Any:
    """How vLLM's trainer side of CUDA IPC is begun: in pieces of bounded size."""
    from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

    return IPCTrainerInitInfo(rank=0, packed=True)


def nccl(workers: int) -> Any:
    """How vLLM's trainer side of NCCL is begun: it is rank 0 of a group with vLLM's workers on other cards."""
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    return NCCLTrainerInitInfo(rank=0, master_address="127.0.0.1", master_port=port, world_size=workers + 1)


class Transfer:
    """Hands the weights of each version over; begun with the first."""

    def __init__(self, llm: Any, info: Callable[[], Any], way: str = "", taken: int = 0) -> None:
        self._llm, self._info = llm, info
        self._way, self._taken = way, taken
        self._state: Mapping[str, Tensor] = {}
        self._engine: Any = None

    async def send(self, state: Mapping[str, Tensor]) -> None:
        """Have vLLM's workers take these tensors; they are in place when this returns."""
        where = next(iter(state.values())).device
        if self._way and where.type == "cpu":
            raise EngineError(
                f"weights={self._way!r} hands over memory of a card, and the policy is trained on the processor; use "
                "weights='files', or --device cuda"
            )
        if self._way == "nccl" and (where.index or 0) < self._taken:
            raise EngineError(
                f"weights='nccl' goes from one card to others, and the policy is trained on {where}, which vLLM takes; "
                f"train it on a card of its own (--device cuda:{self._taken})"
            )
        self._state = state
        loop = asyncio.get_running_loop()
        try:
            # It waits for calls that this loop makes, so it does so in a thread.
            await asyncio.to_thread(self._send, _Calls(self._llm, loop), where)
        finally:
            self._state = {}

    def _send(self, calls: _Calls, where: torch.device) -> None:
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

        # A thread begins on the first card.
        with nullcontext() if where.type == "cpu" else torch.cuda.device(where):
            if self._engine is None:
                self._engine = WeightTransferTrainerFactory.trainer_init(
                    self._info(), client=calls, source=self._source()
                )
            self._engine.client = calls
            self._engine.send_weights()

    def _source(self) -> Any:
        from vllm.distributed.weight_transfer import base as vllm_base

        base: Any = vllm_base

        def state() -> Mapping[str, Tensor]:
            return self._state

        class PolicySource(base.WeightSource):
            def metadata(self) -> list[Any]:
                return [base.ParamMeta(name, value.dtype, tuple(value.shape)) for name, value in state().items()]

            def __iter__(self) -> Iterator[tuple[str, Tensor]]:
                for name, value in state().items():
                    yield name, value.detach()

        return PolicySource()


class _Calls:
    """vLLM's four calls, as its trainer side wants them: each returns when it is done."""

    def __init__(self, llm: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._llm, self._loop = llm, loop

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest

        self._wait(self._llm.init_weight_transfer_engine(WeightTransferInitRequest(init_info=init_info)))

    def start_weight_update(self) -> None:
        self._wait(self._llm.start_weight_update())

    def update_weights(self, update_info: Any) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        self._wait(self._llm.update_weights(WeightTransferUpdateRequest(update_info=update_info)))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._wait(self._llm.finish_weight_update(weight_version))

    def _wait(self, call: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(call, self._loop).result()
