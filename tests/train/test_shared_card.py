"""An engine that sleeps does so while the trainer learns, and takes the new weights awake."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rolltree
from rolltree.engine.local import LocalEngine
from rolltree.engine.segments import SegmentEngine
from rolltree.engine.vllm.backend import VllmBackend
from rolltree.training.loop import Loop
from tests.train.toy import KNOBS, Early, tiny_policy


def test_it_sleeps_while_the_trainer_learns_and_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    learn, take = Loop.learn, LocalEngine.update_weights

    async def sleep(_: Any) -> None:
        told.append("sleep")

    async def wake(_: Any) -> None:
        told.append("wake")

    def learning(loop: Loop, *given: Any) -> dict[str, float]:
        told.append("learn")
        return learn(loop, *given)

    async def taking(engine: Any, *given: Any, **more: Any) -> None:
        told.append("weights")
        await take(engine, *given, **more)

    monkeypatch.setattr(LocalEngine, "sleeps", True, raising=False)
    monkeypatch.setattr(LocalEngine, "sleep", sleep, raising=False)
    monkeypatch.setattr(LocalEngine, "wake", wake, raising=False)
    monkeypatch.setattr(LocalEngine, "update_weights", taking)
    monkeypatch.setattr(Loop, "learn", learning)
    quiet = {**KNOBS, "eval_every": 0, "checkpoint_every": 0, "forests_every": 0}
    rolltree.train("grpo", tiny_policy(), Early(), out=tmp_path / "run", **{**quiet, "steps": 2})
    assert told == ["weights", *["sleep", "learn", "wake", "weights"] * 2]


def test_vllm_sleeps_with_its_weights_kept_and_writes_nothing_meanwhile() -> None:
    told: list[Any] = []

    async def sleep(level: int) -> None:
        told.append(level)

    async def wake_up() -> None:
        told.append("wake")

    codec = rolltree.load("nano").codec
    config = SimpleNamespace(get_vocab_size=lambda: codec.vocab_size, max_model_len=64)
    llm = SimpleNamespace(model_config=config, sleep=sleep, wake_up=wake_up)

    async def main(sleeps: bool) -> bool:
        engine = SegmentEngine(
            VllmBackend(llm, codec.vocab_size, 4, of_sampling=False, version=0, sleeps=sleeps), codec
        )
        if engine.sleeps:
            await engine.sleep()
            assert engine.at_work() is None
            await engine.wake()
        return engine.sleeps

    assert not asyncio.run(main(False))
    assert asyncio.run(main(True))
    assert told == [1, "wake"]
