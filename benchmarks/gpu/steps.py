"""Whole training steps: GRPO and TreePO of a shape with random weights, and the character policy learning."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from numerics import Plain
from work import Bench, Shape

from rolltree.engine.local import LocalEngine
from rolltree.policy.device import place
from rolltree.policy.load import load_model
from rolltree.policy.size import size_of
from rolltree.recipe.grpo import Grpo
from rolltree.recipe.recipe import Parts
from rolltree.recipe.treepo import TreePo
from rolltree.rollout.cursor import Cursor
from rolltree.task.items import TaskError
from rolltree.task.protocol import Item, Reply, Split, Verdict
from rolltree.task.registry import load_task
from rolltree.training.config import Optim, TrainConfig
from rolltree.training.fits import needs
from rolltree.training.learner import make_learner
from rolltree.training.loop import Loop


@dataclass(frozen=True)
class Coin:
    """Any prompt; right when the answer's first character is from the first half, so that groups are mixed."""

    prompt: int
    max_tokens: int
    name: str = "coin"
    level: int = 0
    stop: tuple[str, ...] = ()
    max_turns: int = 0

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        rng = random.Random(seed)
        while True:
            text = "".join(rng.choice("0123456789+-*/") for _ in range(self.prompt))
            yield Item(text, text, True)

    def start(self, item: Item) -> tuple[Any, str | None]:
        return None, None

    async def step(self, item: Item, state: Any, text: str) -> Reply:
        raise TaskError(f"task {self.name!r} has no environment (max_turns is 0), so it takes no step")

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        return Verdict(float(text[:1] < "M"))


def steps(bench: Bench, shape: Shape) -> None:
    """One GRPO step and one TreePO step, weights in float32 under the run's type."""
    prompt, new, segment = (12, 8, 4) if bench.toy else (256, 256, 64)
    grpo = Grpo(group=4 if bench.toy else 8).build()
    treepo = TreePo(leaves=4 if bench.toy else 8, segment=segment).build()
    for parts in (grpo, replace(treepo, rounds=1)):
        what = f"{parts.name} step of {shape.name}"
        bench.attempt(what, lambda p=parts: _step(bench, shape, p, prompt, new), least=40)


def _step(bench: Bench, shape: Shape, parts: Parts, prompt: int, new: int) -> None:
    prompts, task = 2 if bench.toy else 8, Coin(prompt, new)
    config = TrainConfig(
        prompts=prompts, token_budget=64 if bench.toy else 8192, optim=Optim(lr=1e-6), device=str(bench.device),
        dtype=str(bench.dtype).removeprefix("torch."), gradient_checkpointing=not bench.toy,
    )  # fmt: skip
    model = shape.build(bench.device, torch.float32)

    async def run() -> dict[str, float]:
        engine = LocalEngine(
            model, Plain(shape.vocab), device=bench.device, dtype=bench.dtype, version=-1,
            max_tokens_in_memory=4 * prompts * 8 * (prompt + new),
        )  # fmt: skip
        loop = Loop(parts, engine, task, make_learner(parts, model, config), config, Cursor(task, 0))
        await loop.publish()
        for _ in range(2):  # the first builds kernels
            bench.clear()
            numbers, _ = await loop.step()
        await engine.close()
        return numbers

    told = asyncio.run(run())
    estimate = sum(needs(size_of(shape.config), parts, config, place(config.device, config.dtype)).values()) / 1e9
    laps = {name.removeprefix("time/"): value for name, value in told.items() if name.startswith("time/")}
    whole = sum(laps.get(name, 0.0) for name in ("grow", "credit", "learn", "publish"))
    bench.add(
        "steps", what=f"{parts.name}, {shape.name}, {prompts} prompts of {prompt}, {new} new tokens",
        tokens_per_s=told["budget/decoded"] / whole, seconds=whole, grow=laps["grow"], learn=laps["learn"],
        publish=laps["publish"], gap=told.get("policy/mismatch"), peak_gb=bench.peak(),
        estimated_gb=estimate,
    )  # fmt: skip


def learning(bench: Bench) -> None:
    """The packaged policy learns arithmetic with GRPO in the run's type and in float32, from the same seeds."""
    for name in dict.fromkeys((str(bench.dtype).removeprefix("torch."), "float32")):
        bench.attempt(f"learning in {name}", lambda n=name: _learning(bench, n), least=45)


def _learning(bench: Bench, dtype: str) -> None:
    """Solved share of held-out items before and after."""
    count = 2 if bench.toy else 40
    config = TrainConfig(
        steps=count, prompts=2 if bench.toy else 16, eval_items=2 if bench.toy else 64,
        eval_samples=2 if bench.toy else 4, max_tokens=8 if bench.toy else None, device=str(bench.device),
        dtype=dtype,
    )  # fmt: skip
    loaded, task, parts = load_model("nano"), load_task("arithmetic"), Grpo().build()
    model: Any = loaded.model
    model.to(bench.device)
    where = place(config.device, config.dtype)

    async def run() -> tuple[float, float, float, int, float | None]:
        engine = LocalEngine(loaded, device=where.device, dtype=where.dtype, version=-1)
        loop = Loop(parts, engine, task, make_learner(parts, model, config), config, Cursor(task, 0))
        await loop.publish()
        before = (await loop.evaluate())["eval/pass@1"]
        began = time.perf_counter()
        gaps: list[float] = []
        while loop.done < count and bench.left > 10:
            numbers, _ = await loop.step()
            gaps += [numbers["policy/mismatch"]] if "policy/mismatch" in numbers else []
        seconds = time.perf_counter() - began
        after = (await loop.evaluate())["eval/pass@1"]
        await engine.close()
        return before, after, seconds, loop.done, sum(gaps) / len(gaps) if gaps else None

    before, after, seconds, done, gap = asyncio.run(run())
    bench.add("learning", what=f"nano on arithmetic in {dtype}, {done} steps of GRPO", before=before, after=after,
              gap=gap, seconds=seconds)  # fmt: skip
