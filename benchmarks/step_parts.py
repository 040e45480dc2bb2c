"""Where the processor time of a GRPO step goes, per token made: decoding and learning, products and the rest.

    rolltree bench step_parts [--steps 6] [--json FILE]

One thread. The clocks of the engine's and the learner's own thread, medians over steps without a profiler; the products
of matrices and of attention are their shares in one further step under torch's profiler. TRL's whole step is the median
of as many, on the same prompts and lengths.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from machine import clock, save
from torch.profiler import ProfilerActivity, profile
from training import STEPS, Parity, model, trl_steps

from rolltree.engine.local import LocalEngine
from rolltree.engine.local.core import Core
from rolltree.policy.codec import HFCodec
from rolltree.recipe.grpo import Grpo
from rolltree.rollout.cursor import Cursor
from rolltree.training.config import Optim, TrainConfig
from rolltree.training.learner import make_learner
from rolltree.training.loop import Loop
from rolltree.training.step import Learner
from studies.lab.nano.tokenizer import build_tokenizer

PRODUCTS = {"aten::mm": "linear layers", "aten::addmm": "linear layers", "aten::bmm": "products of attention"}


@dataclass(frozen=True)
class Part:
    """Microseconds of processor time per token made."""

    part: str
    linear: float
    attention: float
    rest: float

    @property
    def all(self) -> float:
        return self.linear + self.attention + self.rest


@dataclass(frozen=True)
class Whole:
    """TRL's step, per token made."""

    part: str
    all: float


class Timed:
    """A method's seconds of its thread, added up; with `profiled`, its operations too."""

    def __init__(self, owner: type, name: str) -> None:
        self.owner, self.name, self.seconds = owner, name, 0.0
        self.profiled, self.products = False, dict.fromkeys(("linear layers", "products of attention", "all"), 0.0)
        self._work: Callable[..., Any] = getattr(owner, name)

    def __enter__(self) -> Timed:
        work = self._work

        def timed(*values: Any, **named: Any) -> Any:
            begun = time.thread_time()
            if self.profiled:
                with profile(activities=[ProfilerActivity.CPU]) as seen:
                    made = work(*values, **named)
                for event in seen.key_averages():
                    self.products["all"] += event.self_cpu_time_total
                    if kind := PRODUCTS.get(event.key):
                        self.products[kind] += event.self_cpu_time_total
            else:
                made = work(*values, **named)
            self.seconds += time.thread_time() - begun
            return made

        setattr(self.owner, self.name, timed)
        return self

    def __exit__(self, *_: object) -> None:
        setattr(self.owner, self.name, self._work)


async def ours(shape: tuple[int, int, int, int], steps: int) -> list[Part]:
    """Both parts of our step."""
    prompts, prompt, group, longest = shape
    task, config = Parity(prompt, longest), TrainConfig(prompts=prompts, optim=Optim(lr=1e-6))
    trained, parts = model(), Grpo(group=group).build()
    engine = LocalEngine(trained, HFCodec(build_tokenizer(1024)), version=-1)
    loop = Loop(parts, engine, task, make_learner(parts, trained, config), config, Cursor(task, 0))
    await loop.publish()
    found = list[Part]()
    with Timed(Core, "step") as decoding, Timed(Learner, "step") as learning:
        rates: dict[Timed, list[float]] = {decoding: [], learning: []}
        for number in range(steps + 1):
            for timed in rates:
                timed.seconds = 0.0
            numbers, _ = await loop.step()
            for timed, seen in rates.items():
                if number:  # the first one warms up
                    seen.append(1e6 * timed.seconds / numbers["budget/decoded"])
        for timed in rates:
            timed.profiled = True
        await loop.step()
        for name, timed in (("decoding", decoding), ("learning", learning)):
            each, of = statistics.median(rates[timed]), timed.products
            linear, attention = (each * of[kind] / of["all"] for kind in ("linear layers", "products of attention"))
            found.append(Part(name, linear, attention, each - linear - attention))
    await engine.close()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    clock.kind = "cpu"
    torch.set_num_threads(1)
    parts = asyncio.run(ours(STEPS[0], options.steps))
    theirs = Whole("TRL", 1e6 / statistics.median(trl_steps(STEPS[0], options.steps + 1)[1:]))
    for part in parts:
        print(f"{part.part:10} linear {part.linear:5.0f}  attention {part.attention:5.0f}  rest {part.rest:5.0f}"
              f"  all {part.all:5.0f} µs a token")  # fmt: skip
    print(f"{theirs.part:10} all {theirs.all:5.0f} µs a token")
    save(options.json, [*parts, theirs])


if __name__ == "__main__":
    main()
