"""A vLLM whose engine process dies or is slow to take a label, without vLLM: what the backend waits for."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rolltree.engine.protocol import EngineError
from rolltree.engine.vllm import backend
from rolltree.engine.vllm.backend import VllmBackend


class Llm:
    """Takes a label when it is let; `errored` as vLLM says that its engine process died."""

    def __init__(self) -> None:
        self.model_config = SimpleNamespace(get_vocab_size=lambda: 8, max_model_len=64)
        self.errored, self.label = False, ""
        self.let = asyncio.Event()

    async def update_weight_version(self, label: str) -> None:
        await self.let.wait()
        self.label = label

    async def get_weight_version(self) -> str:
        return self.label

    async def collective_rpc(self, name: str, **_: Any) -> list[Any]:
        await self.let.wait()
        return []


def of(llm: Llm) -> VllmBackend:
    return VllmBackend(llm, 8, 2, of_sampling=False, version=3)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "LOOK", 0.01)


def test_who_waits_for_an_engine_process_that_dies_is_told(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()

    async def run() -> None:
        llm = Llm()
        waiting = asyncio.ensure_future(of(llm).load(tmp_path, 4))
        done, _ = await asyncio.wait({waiting}, timeout=0.05)
        assert not done, "a slow engine process is no dead one"
        llm.errored = True
        with pytest.raises(EngineError, match="engine process died"):
            await asyncio.wait_for(waiting, 300)

    asyncio.run(run())


def test_no_request_goes_before_the_first_label_stands() -> None:
    async def run() -> None:
        llm, order = Llm(), list[str]()
        under = of(llm)

        async def ask() -> None:
            await under._tell()
            order.append(llm.label)

        asks = [asyncio.ensure_future(ask()) for _ in range(3)]
        await asyncio.wait(asks, timeout=0.05)
        assert order == []
        llm.let.set()
        await asyncio.gather(*asks)
        assert order == ["3"] * 3

    asyncio.run(run())
