"""Autograd against central differences in float64, for every objective.

A stop-gradient is a constant by definition, so while the inputs are moved every `detach` replays what it returned at
the base point. What is left is an ordinary function, and its differences must be what autograd says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from rolltree.testing.objective import gradients, random_pair
from tests.objective.test_contract import VARIANTS

STEP = 1e-6


@contextmanager
def detached_once(memory: list[torch.Tensor], *, record: bool) -> Iterator[None]:
    original = torch.Tensor.detach
    replay = iter(memory)

    def detach(tensor: torch.Tensor) -> torch.Tensor:
        if record:
            memory.append(original(tensor).clone())
            return original(tensor)
        return next(replay)

    torch.Tensor.detach = detach  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor.detach = original  # type: ignore[method-assign]


@pytest.mark.parametrize("name", VARIANTS)
def test_autograd_equals_differences(name: str) -> None:
    objective = VARIANTS[name]
    batch = random_pair(11, drift=0.4, missing=0.2, vocabulary=3).folded
    frozen: list[torch.Tensor] = []
    with detached_once(frozen, record=True):
        _, found = gradients(objective, batch)
    fields = ["logp", "entropy", "logits"]
    for field, gradient in zip(fields, found, strict=True):
        if field != "logp" and field not in objective.needs:
            assert gradient.abs().max() == 0
            continue
        start = getattr(batch, field).detach()
        for place in range(start.numel()):
            values = []
            for sign in (1, -1):
                moved = start.clone()
                moved.view(-1)[place] += sign * STEP
                with detached_once(frozen, record=False), torch.no_grad():
                    values.append(objective(replace(batch, **{field: moved}))[0].item())
            slope = (values[0] - values[1]) / (2 * STEP)
            assert gradient.view(-1)[place].item() == pytest.approx(slope, abs=2e-8, rel=1e-6), (field, place)
