"""A decoding step asks the device for nothing but what it brings over at its end, in one copy."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from rolltree.engine.local.choose import fetch, together
from rolltree.engine.protocol import Request, Sampling
from tests.engine import tiny
from tests.engine.test_semantics import run

WAITS = ("__bool__", "__int__", "__float__", "__index__", "item", "tolist", "nonzero", "masked_select", "unique", "cpu")
"""Calls whose result the program must see before it can go on."""


class Waiting(TorchFunctionMode):
    """Notes every such call."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in WAITS:
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


def test_a_decoding_step_never_waits_inside() -> None:
    seen: list[list[str]] = []

    async def scenario(engine: Any) -> None:
        core = engine._worker.core
        step = core.step

        def watched() -> Any:
            decodes = len(core.batch) > 0 and not core.queue
            with Waiting() as mode:
                news = step()
            if decodes:
                seen.append(mode.seen)
            return news

        core.step = watched
        distributions: list[Any] = [{}, {"temperature": 0.0}, {"temperature": 0.7, "top_k": 3}, {"top_p": 0.8}]
        wants = [frozenset[str](), frozenset({"entropy"}), frozenset({"top:3"}), frozenset({"entropy", "top:2"})]
        await asyncio.gather(
            *(
                engine.submit(
                    Request(
                        np.arange(1, 6), Sampling(max_tokens=12, seed=i, ignore_eos=True, **distribution), want=want
                    )
                )
                for i, (distribution, want) in enumerate(zip(distributions, wants, strict=True))
            )
        )

    run(scenario, model=tiny.llama())
    with torch.inference_mode(), Waiting() as caught:
        assert not bool(torch.zeros(2).any())
    assert caught.seen == ["__bool__"], "the watch sees nothing"
    assert len(seen) > 8
    assert not [names for names in seen if names]


def test_numbers_survive_the_one_copy() -> None:
    ids = torch.tensor([0, 151_935, 2**31])
    told = (ids, torch.tensor([[-1.5, float("nan")], [1e-30, 3.4e38]]), torch.tensor([True, False]))
    for mine, plain in zip(together(*told), fetch(*told), strict=True):
        np.testing.assert_array_equal(mine.astype(plain.dtype), plain)
