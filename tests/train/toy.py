"""A task a random policy half solves, and a policy small enough to learn it in a second."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rolltree.policy.codec import HFCodec
from rolltree.policy.load import LoadedModel
from rolltree.recipe.recipe import Recipe
from rolltree.recipe.registry import load_recipe
from rolltree.task.protocol import Item, Reply, Split, Verdict
from studies.lab.nano.tokenizer import build_tokenizer


@dataclass(frozen=True)
class Early:
    """The answer must begin with a character from the first half of the alphabet."""

    name: str = "early"
    level: int = 0
    stop: tuple[str, ...] = ()
    max_tokens: int = 4
    max_turns: int = 0
    sunny: bool = False
    """Whether every answer is right."""

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        rng = random.Random(f"{split}{seed}")
        while True:
            prompt = "".join(rng.choice("abcdefgh") for _ in range(rng.randint(2, 6))) + "="
            yield Item(f"{split}-{prompt}", prompt, True, meta={"solution": "ABCD"})

    def start(self, item: Item) -> tuple[Any, str | None]:
        return None, None

    async def step(self, item: Item, state: Any, text: str) -> Reply:
        raise NotImplementedError

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        return Verdict(float(self.sunny or (text[:1] < "O" and text[:1] >= " ")))

    def act(self, item: Item, state: Any, rng: random.Random, noise: float = 0.0) -> str:
        return "Z" if rng.random() < noise else "ABCD"


@dataclass(frozen=True)
class Talk(Early):
    """Two turns, ended by a vowel or a digit; those that begin late in the alphabet fail. The first letter counts."""

    name: str = "talk"
    stop: tuple[str, ...] = tuple("aeiou0123456789 ")
    max_tokens: int = 24
    max_turns: int = 4

    def start(self, item: Item) -> tuple[int, str]:
        return 0, "0"

    async def step(self, item: Item, state: int, text: str) -> Reply:
        if text[:1] > "k":
            return Reply("?", state, state_key=str(state), failed=True)
        return Reply("+", state + 1, done=state == 1, state_key=str(state + 1))

    async def verify(self, item: Item, state: int, text: str) -> Verdict:
        return Verdict(float(text[:1] < "O"), answer=text[:1])


def tiny_policy(seed: int = 0) -> LoadedModel:
    tokenizer = build_tokenizer(64)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    return LoadedModel(LlamaForCausalLM(config).eval(), HFCodec(tokenizer), Path("tiny"), "tiny")


KNOBS: dict[str, Any] = {
    "steps": 6, "prompts": 4, "lr": 3e-3, "warmup": 1, "eval_every": 3, "eval_items": 8, "eval_samples": 2,
    "checkpoint_every": 2, "forests_every": 3, "quiet": True,
}  # fmt: skip


def timeless(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Metrics without what a clock says."""
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in lines]


def several_turns() -> Recipe:
    """Branches after replies of the environment, in dialogues."""
    return load_recipe("arpo", leaves=6, first=3)


RUNS: dict[str, tuple[Callable[[], str | Recipe], Early, dict[str, Any]]] = {
    "paths": (lambda: "gspo", Early(), {}),
    "turns": (several_turns, Talk(), {}),
    "turns-waiting": (several_turns, Talk(), {"staleness": 2}),
}
"""Recipe, task and knobs of runs that are killed and resumed."""


def _killed(out: str, name: str) -> None:
    """Entry point of a process that is killed in the middle of step 5."""
    import os
    import signal

    import rolltree
    from rolltree.training.loop import RunEvent

    def listen(live: RunEvent) -> None:
        if live.kind == "grown" and live.step == 5:
            os.kill(os.getpid(), signal.SIGKILL)

    recipe, task, knobs = RUNS[name]
    rolltree.train(recipe(), tiny_policy(), task, out=out, listen=listen, **{**KNOBS, **knobs})


if __name__ == "__main__":
    torch.set_num_threads(1)
    _killed(sys.argv[1], sys.argv[2])
