"""What two libraries for test-time scaling are given, and their searches over one item (`search_peers.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import exp, isqrt
from typing import Any

from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import Request, Sampling
from rolltree.generate.random import mix
from rolltree.task.protocol import Item, Task, Verdict

END = "\n"
"""Stands for the end of an answer in what a library is given; no task here writes it."""
STEP, DELIMITER, WAYS = 16, ",", 3
"""Most tokens of a step, what ends one, and steps tried at a node."""


class Model:
    """What a library samples and asks: one item's texts, with the confidence in each and its verdict."""

    def __init__(self, engine: LocalEngine, task: Task, item: Item, seed: int) -> None:
        self.engine, self.task, self.item, self.seed = engine, task, item, seed
        self.prompt = engine.codec.encode(item.prompt)
        self.decoded = self.asked = 0
        self.logp: dict[str, tuple[float, int]] = {"": (0.0, 0)}
        self.verdicts: dict[str, Verdict] = {}

    async def write(self, text: str, most: int, stop: Sequence[str]) -> str:
        """What follows a text; its last character is `END` where the answer has ended."""
        self.asked += 1
        ids = self.engine.codec.encode(text)
        room = min(most, self.task.max_tokens - len(ids))
        stops = tuple(s for s in stop if s != END)
        sampling = Sampling(max_tokens=room, stop=stops, seed=mix(self.seed, self.item.id, self.asked))
        sample = await self.engine.submit(Request([*self.prompt, *ids], sampling))
        made = self.engine.codec.decode(sample.actions)
        over = sample.finish == "eos" or len(ids) + len(sample.actions) >= self.task.max_tokens
        self.decoded += len(sample.actions)
        before, count = self.logp[text]
        self.logp[text + made + END * over] = (before + float(sample.logp.sum()), count + len(sample.actions))
        if over:
            self.verdicts[text + made] = await self.task.verify(self.item, None, text + made)
        return made + END * over

    def confidence(self, text: str) -> float:
        """Geometric mean probability of what was written."""
        total, count = self.logp[text] if text in self.logp else self.logp[text + END]
        return exp(total / count) if count else 0.0

    def value(self, text: str, worth: str) -> float:
        """The reward of a path, in [0, 1]; the verifier speaks of finished ones, confidence of all."""
        return self.right(text) if worth == "verifier" and self.finished(text) else self.confidence(text)

    def finished(self, text: str) -> bool:
        return text.rstrip(END) in self.verdicts

    def right(self, text: str) -> float:
        verdict = self.verdicts.get(text.rstrip(END))
        return float(verdict is not None and verdict.score >= 1)

    def answer(self, text: str) -> str:
        """In normal form; what cannot be read stands for itself."""
        verdict = self.verdicts.get(text.rstrip(END))
        return text if verdict is None or verdict.answer is None else verdict.answer


def adapters(model: Model, worth: str) -> tuple[Any, Any, Any]:
    """its_hub's language model, outcome reward model and process reward model over one item."""
    from its_hub.api import AbstractLanguageModel, AbstractOutcomeRewardModel, AbstractProcessRewardModel

    async def one(messages: Any, stop: Any, most: int | None) -> dict[str, Any]:
        text = messages[-1].content if messages[-1].role == "assistant" else ""
        stops = [stop] if isinstance(stop, str) else list(stop or ())
        made = await model.write(text, most or (STEP if stops else model.task.max_tokens), stops)
        return {"role": "assistant", "content": made}

    class Writer(AbstractLanguageModel):
        async def agenerate(self, messages: Any, stop: Any = None, max_completion_tokens: Any = None, **_: Any) -> Any:
            if not isinstance(messages[0], list):
                return await one(messages, stop, max_completion_tokens)
            return list(await asyncio.gather(*(one(m, stop, max_completion_tokens) for m in messages)))

        async def agenerate_single(self, messages: Any, stop: Any = None, **knobs: Any) -> Any:
            return await one(messages, stop, knobs.get("max_completion_tokens"))

    class Outcome(AbstractOutcomeRewardModel):
        def score(self, messages: Any, **_: Any) -> list[float]:
            return [model.value(m[-1].content, worth) for m in messages]

        async def ascore(self, messages: Any, orchestrator: Any = None, **_: Any) -> list[float]:
            return self.score(messages)

    class Process(AbstractProcessRewardModel):
        def score(self, prompt_or_messages: Any, steps: Any) -> list[float]:
            return [model.value(text, worth) for text in steps]

        async def ascore(self, prompt_or_messages: Any, steps: Any) -> list[float]:
            return self.score(prompt_or_messages, steps)

    return Writer(), Outcome(), Process()


def stepping() -> Any:
    from its_hub.core.lms.step_generation import StepGeneration

    return StepGeneration(25, [DELIMITER, END], END, temperature=1.0, include_stop_str_in_output=True)


async def consistency(model: Model, width: int) -> str:
    from its_hub import SelfConsistency
    from its_hub.core.orchestrator import LMOrchestrator

    writer, _, _ = adapters(model, "path")
    search = SelfConsistency(model.answer, orchestrator=LMOrchestrator(-1))
    return str((await search.ainfer(writer, model.item.prompt, width))["content"])


async def best(model: Model, width: int, worth: str) -> str:
    from its_hub import BestOfN
    from its_hub.core.orchestrator import LMOrchestrator

    writer, outcome, _ = adapters(model, worth)
    return str((await BestOfN(outcome, LMOrchestrator(-1)).ainfer(writer, model.item.prompt, width))["content"])


async def beam(model: Model, width: int) -> str:
    """Of `width` paths the root of that many are kept, as in the recipe."""
    return await kept_of(model, width, isqrt(width))


async def kept_of(model: Model, width: int, kept: int) -> str:
    from its_hub.core.algorithms.beam_search import BeamSearch

    writer, _, process = adapters(model, "path")
    return str((await BeamSearch(stepping(), process, kept).ainfer(writer, model.item.prompt, width))["content"])


async def dvts(model: Model, width: int) -> str:
    """Independent beams that keep one path each."""
    ways = isqrt(width)
    found = await asyncio.gather(*(kept_of(model, ways, 1) for _ in range(ways)))
    return max(found, key=lambda text: model.value(text, "path"))


async def particles(model: Model, width: int) -> str:
    from its_hub.core.algorithms.particle_gibbs import ParticleFiltering

    writer, _, process = adapters(model, "path")
    return str((await ParticleFiltering(stepping(), process).ainfer(writer, model.item.prompt, width))["content"])


async def mcts(model: Model, width: int, worth: str) -> str:
    """Steps as nodes, each worth what a rollout from it to the end is; the answer is the best rollout's."""
    from treequest import StandardMCTS

    search: Any = StandardMCTS(samples_per_action=WAYS, exploration_weight=2.0)
    state, found = search.init_tree(), dict[str, float]()

    async def make(parent: str | None) -> tuple[str, float]:
        text = parent or ""
        if not text.endswith(END):
            text += await model.write(text, STEP, (DELIMITER, END))
        whole = text if text.endswith(END) else text + await model.write(text, model.task.max_tokens, ())
        found[whole] = model.value(whole, worth)
        return text, found[whole]

    for _ in range(width):
        state, trials = search.ask_batch(state, WAYS, ["step"])
        made = await asyncio.gather(*(make(trial.parent_state) for trial in trials))
        for trial, result in zip(trials, made, strict=True):
            state = search.tell(state, trial.trial_id, result)
    return max(found, key=lambda text: found[text])
