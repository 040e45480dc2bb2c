"""Shapes, trees and clocks that all parts share."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from rolltree.tree import Tree


@dataclass(frozen=True)
class Shape:
    """A Qwen2.5 of random weights."""

    name: str
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int = 151_936
    tied: bool = True

    @property
    def config(self) -> Qwen2Config:
        return Qwen2Config(
            hidden_size=self.hidden, intermediate_size=self.inner, num_hidden_layers=self.layers,
            num_attention_heads=self.heads, num_key_value_heads=self.kv_heads, vocab_size=self.vocab,
            tie_word_embeddings=self.tied, max_position_embeddings=32_768, bos_token_id=None, eos_token_id=0,
            pad_token_id=None,
        )  # fmt: skip

    def build(self, device: torch.device, dtype: torch.dtype) -> Any:
        """Random weights, made where they stay."""
        torch.manual_seed(0)
        with torch.device(device):
            return AutoModelForCausalLM.from_config(self.config, dtype=dtype).eval()


LARGE = (
    Shape("Qwen2.5-0.5B", 896, 4864, 24, 14, 2),
    Shape("Qwen2.5-1.5B", 1536, 8960, 28, 12, 2),
    Shape("Qwen2.5-7B", 3584, 18_944, 28, 28, 4, 152_064, False),
)
TOY = (Shape("toy", 32, 48, 2, 4, 2, 97), Shape("toy-untied", 32, 48, 2, 4, 1, 97, False))


@dataclass(frozen=True)
class Case:
    """Trees of one batch: groups behind a prompt, or agents that fork after each of three turns."""

    name: str
    prompt: int
    leaves: int
    length: int
    """Of a completion; of a turn, for agents."""
    trees: int = 1
    agent: bool = False

    def grow(self, vocab: int, seed: int = 0) -> list[Tree]:
        rng = np.random.default_rng(seed)
        return [(self._agent if self.agent else self._group)(f"t{i}", rng, vocab) for i in range(self.trees)]

    def _group(self, name: str, rng: np.random.Generator, vocab: int) -> Tree:
        tree = Tree(name, rng.integers(1, vocab, self.prompt))
        for _ in range(self.leaves):
            _write(tree, 0, rng, vocab, self.length)
        return tree

    def _agent(self, name: str, rng: np.random.Generator, vocab: int) -> Tree:
        """Three turns, each followed by an observation as long as itself; two ways on behind each, until enough."""
        tree = Tree(name, rng.integers(1, vocab, self.prompt))
        heads: list[Any] = [0]
        for turn in range(3):
            ways = 2 if turn < 2 else max(1, self.leaves // len(heads))
            written = [_write(tree, head, rng, vocab, self.length) for head in heads for _ in range(ways)]
            heads = written
            if turn < 2:
                heads = [tree.extend(w, rng.integers(1, vocab, self.length), role="env") for w in written]
        return tree


LARGE_CASES = (
    Case("group of 8", 256, 8, 256, trees=4),
    Case("group of 8", 2048, 8, 256),
    Case("group of 16", 2048, 16, 256),
    Case("group of 8", 8192, 8, 512),
    Case("agent, three turns", 2048, 16, 256, agent=True),
)
TOY_CASES = (Case("group of 4", 24, 4, 8, trees=2), Case("agent, three turns", 20, 8, 6, agent=True))


def _write(tree: Tree, above: Any, rng: np.random.Generator, vocab: int, length: int) -> Any:
    node = tree.extend(above, rng.integers(1, vocab, length), logp=np.full(length, -np.log(vocab), np.float32))
    node.status, node.scores["reward"] = "done", float(rng.random())
    return node


@dataclass
class Bench:
    """Where it runs, for how long, and what was found."""

    device: torch.device
    dtype: torch.dtype
    toy: bool
    seconds: float
    began: float = field(default_factory=time.perf_counter)
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])
    left_out: list[str] = field(default_factory=list[str])
    after: Callable[[], None] | None = None
    """Called after every row, so that a run that is cut off leaves what it found."""

    @property
    def shapes(self) -> Sequence[Shape]:
        return TOY if self.toy else LARGE

    @property
    def cases(self) -> Sequence[Case]:
        return TOY_CASES if self.toy else LARGE_CASES

    @property
    def left(self) -> float:
        return self.seconds - (time.perf_counter() - self.began)

    def add(self, part: str, **row: Any) -> None:
        self.rows.setdefault(part, []).append(row)
        said = "  ".join(f"{k} {_said(v)}" for k, v in row.items())
        print(f"{time.perf_counter() - self.began:6.0f} s  {part}: {said}", flush=True)
        if self.after:
            self.after()

    def attempt(self, what: str, work: Callable[[], None], *, least: float = 5.0) -> None:
        """Do it if there is time; what fails is told with its reason, and the rest goes on."""
        if self.left < least:
            self.left_out.append(f"{what}: the time was up")
            return
        try:
            work()
        except Exception as error:  # one part must not take the others with it
            said = (str(error).strip().splitlines() or [""])[0]
            self.left_out.append(f"{what}: {type(error).__name__}: {said[:300]}")
            print(f"  left out: {self.left_out[-1]}", flush=True)
            traceback.print_exc()
        finally:
            self.clear()

    def clear(self) -> None:
        if self.device.type != "cpu":
            torch.accelerator.synchronize()
            torch.accelerator.empty_cache()
            torch.accelerator.reset_peak_memory_stats()

    def peak(self) -> float | None:
        """Gigabytes at most since the last clearing; None on a processor."""
        return None if self.device.type == "cpu" else torch.accelerator.max_memory_allocated() / 1e9

    def time(self, work: Callable[[], Any], repeats: int = 3) -> float:
        """Median seconds, after one run that is not counted."""
        seconds: list[float] = []
        for _ in range(repeats + 1):
            self.wait()
            began = time.perf_counter()
            work()
            self.wait()
            seconds.append(time.perf_counter() - began)
        return float(np.median(seconds[1:]))

    def wait(self) -> None:
        if self.device.type != "cpu":
            torch.accelerator.synchronize()


def _said(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
