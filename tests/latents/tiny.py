"""A small untrained flow model, and its engine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import torch

from rolltree.engine.protocol import Engine
from rolltree.generate.runner import grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.latents.engine import LatentEngine
from rolltree.latents.flow import FlowNet, FlowSpec
from rolltree.latents.task import Digits
from rolltree.policy.load import LoadedModel
from rolltree.task.protocol import Item
from rolltree.tree import Forest


def tiny_net(seed: int = 0, steps: int = 6) -> FlowNet:
    """Random weights."""
    torch.manual_seed(seed)
    return FlowNet(FlowSpec(width=24, blocks=1, steps=steps)).eval()


def tiny_engine(seed: int = 0, steps: int = 6) -> LatentEngine:
    """An engine on them."""
    return LatentEngine(tiny_net(seed, steps))


def tiny_loaded(seed: int = 0) -> LoadedModel:
    """The same as a loaded model."""
    net = tiny_net(seed)
    return LoadedModel(net, net.channel, Path("tiny"), "tiny")


def items(count: int) -> list[Item]:
    """Labels in turn."""
    return [Item(f"digits-{i}", i % 10, i % 10) for i in range(count)]


def grown(strategy: TreeStrategy, count: int = 1, *, engine: Engine | None = None, seed: int = 0) -> Forest:
    """Trees of a strategy on the tiny model."""

    async def run() -> Forest:
        mine = engine or tiny_engine()
        try:
            return await grow(strategy, mine, Digits(), items(count), seed=seed)
        finally:
            await mine.close()

    return asyncio.run(run())
