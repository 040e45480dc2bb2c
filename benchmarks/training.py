"""Packed training against a flat padded batch, and a whole GRPO step against TRL's trainer: same model, same machine.

    python benchmarks/training.py [--repeats 5] [--threads 2] [--only packed|step] [--clock wall|cpu] [--json FILE]

packed   forward and backward of the log-probs of every sampled token, from the same rollouts; `ragged` draws lengths
         uniformly from a quarter of the longest up, and flat rows are padded to the longest, as trainers do
step     rollouts, credit, one update and publishing the weights, per token made, against `trl.GRPOTrainer`; lengths
         are whatever a random model draws (it ends one token in a hundred)

Every ratio compares two runs made one after the other, so a busy machine slows both; min, median and max over repeats.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import clock, save
from transformers import LlamaConfig, LlamaForCausalLM

from rolltree.engine.local import LocalEngine
from rolltree.policy.codec import HFCodec
from rolltree.policy.language import LanguagePolicy
from rolltree.policy.packed import pack
from rolltree.recipe.grpo import Grpo
from rolltree.rollout.cursor import Cursor
from rolltree.task.items import TaskError
from rolltree.task.protocol import Item, Reply, Split, Verdict
from rolltree.training.config import Optim, TrainConfig
from rolltree.training.learner import make_learner
from rolltree.training.loop import Loop
from rolltree.tree import Tree
from rolltree.tree.table import table
from studies.lab.nano.tokenizer import build_tokenizer

PACKED = ((1, 256, 8, 64), (1, 512, 16, 32), (1, 64, 8, 64), (4, 256, 8, 64), (16, 20, 8, 40))
"""Trees, prompt, leaves, longest leaf."""
STEPS = ((16, 20, 8, 64), (8, 128, 16, 64))
"""Prompts, prompt length, group, longest leaf."""


@dataclass(frozen=True)
class Row:
    """One comparison. Rates: trained (packed) or generated (step) tokens per second, medians; ratios ours / theirs."""

    case: str
    trees: int
    prompt: int
    leaves: int
    longest: int
    threads: int
    ours: float
    theirs: float
    ratio_min: float
    ratio_median: float
    ratio_max: float


def model() -> LlamaForCausalLM:
    """Random weights in the shape of the packaged character policy."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(build_tokenizer(1024)), hidden_size=128, intermediate_size=344, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=1024, bos_token_id=None,
        eos_token_id=build_tokenizer(1024).eos_token_id, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def packed_row(shape: tuple[int, int, int, int], ragged: bool, repeats: int) -> Row:
    """Packed against flat."""
    trees, prompt, leaves, longest = shape
    rng = np.random.default_rng(0)
    forest = [Tree(f"t{i}", rng.integers(3, 99, prompt)) for i in range(trees)]
    for tree in forest:
        for _ in range(leaves):
            tree.extend(0, rng.integers(3, 99, rng.integers(longest // 4, longest + 1) if ragged else longest))
    view = table(forest)
    a, b = model(), model()
    policy = LanguagePolicy(a)
    rows = [tree.prefix(leaf) for tree in forest for leaf in tree.leaves()]
    width = max(map(len, rows))
    ids = torch.tensor(np.stack([np.pad(r, (0, width - len(r))) for r in rows]))
    mask = torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in rows])
    real = mask[:, prompt:].bool()

    def ours() -> None:
        a.zero_grad()
        policy.read(pack(view, view.loss_mask)).logp.mean().backward()

    def theirs() -> None:
        b.zero_grad()
        logits = b(input_ids=ids, attention_mask=mask, logits_to_keep=width - prompt + 1, use_cache=False).logits
        logp = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, prompt:, None])[..., 0]
        logp[real].mean().backward()

    tokens = int(real.sum())
    pairs = [(_seconds(ours), _seconds(theirs)) for _ in range(repeats + 1)][1:]
    return _row("packed ragged" if ragged else "packed", shape, [(tokens / x, tokens / y) for x, y in pairs])


@dataclass(frozen=True)
class Parity:
    """Any prompt; right when the answer's length is even, so that groups are mixed."""

    prompt: int
    max_tokens: int
    name: str = "parity"
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
        return Verdict(float(len(text) % 2 == 0))


def our_steps(shape: tuple[int, int, int, int], steps: int) -> list[float]:
    """Tokens per second of each step of the loop."""
    prompts, prompt, group, longest = shape
    task, config = Parity(prompt, longest), TrainConfig(prompts=prompts, optim=Optim(lr=1e-6))
    trained, parts = model(), Grpo(group=group).build()
    rates: list[float] = []

    async def run() -> None:
        engine = LocalEngine(trained, HFCodec(build_tokenizer(1024)), version=-1)
        loop = Loop(parts, engine, task, make_learner(parts, trained, config), config, Cursor(task, 0))
        await loop.publish()
        for _ in range(steps):
            begin = clock()
            numbers, _ = await loop.step()
            rates.append(numbers["budget/decoded"] / (clock() - begin))
        await engine.close()

    asyncio.run(run())
    return rates


def trl_steps(shape: tuple[int, int, int, int], steps: int) -> list[float]:
    """The same of `trl.GRPOTrainer`, generation through transformers."""
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    prompts, prompt, group, longest = shape
    items = Parity(prompt, longest).items("train")
    data = Dataset.from_list([{"prompt": next(items).prompt} for _ in range(prompts * steps)])
    made: list[int] = []
    at: list[float] = []

    def reward(completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        made.append(sum(map(len, completion_ids)))
        return [float(len(text) % 2 == 0) for text in completions]

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            at.append(clock())

        def on_step_end(self, *_: Any, **__: Any) -> None:
            at.append(clock())

    tokenizer = build_tokenizer(1024)
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder, per_device_train_batch_size=prompts * group, num_generations=group, beta=0.0,
            max_completion_length=longest, max_steps=steps, learning_rate=1e-6, use_cpu=True, bf16=False,
            gradient_checkpointing=False, report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        trainer = GRPOTrainer(
            model=model(), reward_funcs=reward, args=config, train_dataset=data, processing_class=tokenizer,
            callbacks=[Clock()],
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return [n / (end - begin) for n, begin, end in zip(made, at[::2], at[1::2], strict=True)]


def step_row(shape: tuple[int, int, int, int], repeats: int) -> Row:
    """Our step against TRL's: blocks of two steps after one to warm up, alternating."""
    pairs: list[tuple[float, float]] = []
    for _ in range(repeats):
        ours, theirs = our_steps(shape, 3)[1:], trl_steps(shape, 3)[1:]
        pairs.append((statistics.mean(ours), statistics.mean(theirs)))
    return _row("grpo step", shape, pairs)


def rows(repeats: int = 5, *, packed: bool = True, trl: bool = True) -> Iterator[Row]:
    """All comparisons, one by one."""
    for shape in PACKED if packed else ():
        for ragged in (False, True):
            yield packed_row(shape, ragged, repeats)
    if trl:
        for shape in STEPS:
            yield step_row(shape, max(1, repeats // 2))


def _seconds(work: Callable[[], None]) -> float:
    begin = clock()
    work()
    return clock() - begin


def _row(case: str, shape: tuple[int, int, int, int], rates: list[tuple[float, float]]) -> Row:
    ratios = [ours / theirs for ours, theirs in rates]
    ours, theirs = (statistics.median(r) for r in zip(*rates, strict=True))
    low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
    return Row(case, *shape, torch.get_num_threads(), ours, theirs, low, middle, high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: on a machine that others use")
    parser.add_argument("--only", nargs="*", default=[], choices=["packed", "step"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    clock.kind = options.clock
    torch.set_num_threads(options.threads)
    done: list[Row] = []
    head = f"{'case':15}{'trees':>6}{'prompt':>7}{'leaves':>7}{'longest':>8}{'ours/s':>10}{'theirs/s':>10}"
    print(head + "  ratio min med max")
    for row in rows(options.repeats, packed="step" not in options.only, trl="packed" not in options.only):
        done.append(row)
        print(
            f"{row.case:15}{row.trees:6}{row.prompt:7}{row.leaves:7}{row.longest:8}{row.ours:10,.0f}{row.theirs:10,.0f}"
            f"  {row.ratio_min:.2f} {row.ratio_median:.2f} {row.ratio_max:.2f}", flush=True,
        )  # fmt: skip
    save(options.json, done)


if __name__ == "__main__":
    main()
