"""What a trainer rank holds at most: one process and several ranks make the same steps, each telling its height.

    python benchmarks/ranks.py [--width 512] [--layers 8] [--ranks 1 2 4] [--json FILE]

A Llama with random weights in single precision learns from one packed tree per rank, twice: the second step has the
optimizer's state. The height is the most memory that stood at once during that step (VmHWM of Linux, reset before it),
less what Python, torch and the group of ranks took before there was a model; it is told in sizes of the model's
weights, of which a single process needs four (weights, gradient, two moments) and activations. Those are of one tree of
192 tokens, half as large as this small model; each number of ranks is measured with them kept and with them computed
again (gradient checkpointing).
What stands between steps is told beside it.
The run's driver, which keeps one more whole copy, is not a part of this.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from machine import save
from torch import multiprocessing
from transformers import LlamaConfig, LlamaForCausalLM

from rolltree.credit.advantage import Advantage
from rolltree.credit.fold import fold, leaf_weights
from rolltree.objective.registry import load_objective
from rolltree.policy.device import Compute
from rolltree.policy.language import LanguagePolicy
from rolltree.training.backward import StepKnobs
from rolltree.training.config import Optim
from rolltree.training.optimizer import make_optimizer
from rolltree.training.pack import Micro, micro_batches
from rolltree.training.ranks.start import meeting
from rolltree.training.ranks.worker import Beginning, begin, run_updates
from rolltree.training.step import Learner, Work
from rolltree.tree import Tree
from rolltree.tree.table import table

VOCAB, PROMPT, LEAVES, LONG = 4096, 64, 4, 32


@dataclass(frozen=True)
class Row:
    """One rank of so many, in MiB and in sizes of the weights."""

    ranks: int
    rank: int
    checkpointing: bool
    weights: float
    between: float
    height: float
    between_in_weights: float
    height_in_weights: float


def memory(name: str) -> float:
    """A line of the process's status, in MiB."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found, f"this system tells no {name}"
    return int(found[1]) / 1024


def model(width: int, layers: int) -> LlamaForCausalLM:
    """Random weights, the same in every process."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers,
            num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=256, tie_word_embeddings=True,
        )
    ).eval()  # fmt: skip


def micros(count: int) -> list[Micro]:
    """As many micro-batches, of a tree each."""
    rng = np.random.default_rng(0)
    forest = [Tree(f"t{i}", rng.integers(3, VOCAB, PROMPT)) for i in range(count)]
    for tree in forest:
        for _ in range(LEAVES):
            logp = np.full(LONG, -8, np.float32)
            tree.extend(
                0, rng.integers(3, VOCAB, LONG), status="done", logp=logp, sampling_logprob=logp, scores={"reward": 0.0}
            )
    view = table(forest)
    advantage = Advantage(leaf=rng.normal(size=len(view.leaf)))
    return micro_batches(view, fold(view, advantage, leaf_weights(view, "token")), 1, whole_trees=True)


def learner_of(whole: LlamaForCausalLM, size: int, *, checkpointing: bool) -> Learner:
    """One rank's learner."""
    policy, optim = LanguagePolicy(whole, compute=Compute(checkpointing=checkpointing)), Optim(lr=1e-4)
    learner = Learner(policy, make_optimizer(policy, optim), optim, {})
    if size == 1:
        return learner
    return begin(Beginning.of(learner), policy.device, {"": policy.state_dict()} if dist.get_rank() == 0 else None)


def taught(learner: Learner, micro: Micro, size: int) -> None:
    """A step; where there are several ranks, trained weights are gathered as for a driver that takes them elsewhere."""
    work = Work([load_objective("clipped")], [[micro]], [1.0], [size], 0, StepKnobs(), learner.optim)
    learner.run_updates(work, []) if size == 1 else run_updates(learner, replace(work, passes=[1]))


def measure(rank: int, size: int, port: int, shape: tuple[int, int], checkpointing: bool, tell: Any) -> None:
    """Be one of so many ranks and say what two steps took."""
    torch.set_num_threads(1)
    parts = micros(size)
    if size > 1:
        dist.init_process_group("gloo", store=meeting(port, size), rank=rank, world_size=size)
    # A step of a model of nothing loads all code that a step takes.
    taught(learner_of(model(16, 1), size, checkpointing=checkpointing), parts[rank], size)
    gc.collect()
    base = memory("VmRSS")
    learner = learner_of(model(*shape), size, checkpointing=checkpointing)
    weights = sum(p.numel() * p.element_size() for p in model(*shape).parameters()) / 2**20
    taught(learner, parts[rank], size)
    gc.collect()
    between = memory("VmRSS") - base
    Path("/proc/self/clear_refs").write_text("5")
    taught(learner, parts[rank], size)
    height = memory("VmHWM") - base
    tell.put(Row(size, rank, checkpointing, weights, between, height, between / weights, height / weights))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    # What is freed goes back to the system at once, so that what is told is what is in use.
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", "65536")
    context = multiprocessing.get_context("spawn")
    done: list[Row] = []
    print("ranks  rank  weights MiB  between steps  height   in sizes of the weights")
    for size, checkpointing in product(options.ranks, (False, True)):
        store, tell = meeting(0, size, host=True), context.SimpleQueue()
        shape = (options.width, options.layers)
        processes = [
            context.Process(target=measure, args=(r, size, store.port, shape, checkpointing, tell)) for r in range(size)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
            assert not process.exitcode, f"a rank ended with {process.exitcode}"
        rows = sorted((tell.get() for _ in processes), key=lambda row: row.rank)
        done += rows
        for row in rows:
            print(
                f"{row.ranks:5}  {row.rank:4}  {row.weights:11.0f}  {row.between:13.0f}  {row.height:6.0f}   "
                f"{row.between_in_weights:.2f} between, {row.height_in_weights:.2f} at the height"
                f"{', activations computed again' if row.checkpointing else ''}"
            )
    save(options.json, done)


if __name__ == "__main__":
    main()
