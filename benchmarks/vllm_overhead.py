"""Strategy and hand over vLLM against vLLM's own offline `generate`: the same requests, alternating in one process.

    .venv-vllm/bin/python benchmarks/vllm_overhead.py [--model nano] [--prompts 8] [--group 8] [--repeats 5]
        [--max-tokens 64] [--json FILE]

A strategy grows groups of independent rollouts on a task. Every request it sends to vLLM is written down and then put
to the offline engine as it was: ids, sampling law, seed, stop ids, log-probs. Wall clock; tokens are counted on both
sides, and the ratio is of tokens a second. Two vLLM engines are up at once and only one of them works at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from machine import save

from rolltree.engine.protocol import Sampling
from rolltree.engine.segments import Ask, Piece, SegmentEngine
from rolltree.engine.vllm import start
from rolltree.engine.vllm.start import cpu_settings
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.policy.load import load_model
from rolltree.task.registry import load_task


@dataclass(frozen=True, slots=True)
class Row:
    """One pair of runs."""

    model: str
    requests: int
    tokens: int
    offline_tokens: int
    hand_seconds: float
    offline_seconds: float
    ratio: float
    """Tokens a second of the hand over those of offline generate."""


class Recorder:
    """A backend that writes down what it is asked."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.asks: list[Ask] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def write(self, ask: Ask) -> AsyncGenerator[Piece]:
        self.asks.append(ask)
        async with aclosing(self._backend.write(ask)) as pieces:
            async for piece in pieces:
                yield piece


def offline(llm: Any, asks: list[Ask]) -> tuple[int, float]:
    """Tokens and seconds of vLLM's own loop on the same requests."""
    from vllm import SamplingParams

    params = [
        SamplingParams(
            max_tokens=a.most, temperature=a.sampling.temperature, top_p=a.sampling.top_p, top_k=a.sampling.top_k,
            seed=a.seed, stop_token_ids=list(a.ends), ignore_eos=True, logprobs=a.alternatives, flat_logprobs=True,
            detokenize=False,
        )
        for a in asks
    ]  # fmt: skip
    prompts = [{"prompt_token_ids": list(a.tokens), "cache_salt": a.salt} for a in asks]
    began = time.perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds = time.perf_counter() - began
    return sum(len(o.outputs[0].token_ids) for o in outputs), seconds


async def measure(a: argparse.Namespace) -> list[Row]:
    from vllm import LLM

    loaded = load_model(a.model)
    small: dict[str, Any] = {"gpu_memory_utilization": 0.1, "max_num_seqs": 256}
    inner = start(loaded, max_batch=256, gpu_memory_utilization=0.1)
    recorder = Recorder(inner.backend)
    engine = SegmentEngine(recorder, loaded.codec, seed=0)
    llm = LLM(
        model=str(loaded.path), skip_tokenizer_init=True, dtype="float32", enforce_eager=True,
        enable_prefix_caching=True, disable_log_stats=True, max_logprobs=64, **cpu_settings(), **small,
    )  # fmt: skip
    task = load_task(a.task)
    items = list(islice(task.items("train", 0), a.prompts))
    rows: list[Row] = []
    for repeat in range(a.repeats + 1):
        recorder.asks.clear()
        began = time.perf_counter()
        forest = await grow(
            Independent(a.group), engine, task, items, seed=repeat, max_tokens=a.max_tokens, sampling=Sampling()
        )
        seconds = time.perf_counter() - began
        tokens = sum(len(n) for tree in forest for n in tree if n.role == "policy")
        theirs, their_seconds = offline(llm, recorder.asks)
        ratio = (tokens / seconds) / (theirs / their_seconds)
        if repeat:  # the first pair warms both up
            rows.append(Row(a.model, len(recorder.asks), tokens, theirs, seconds, their_seconds, ratio))
            print(
                f"{tokens} tokens {seconds:.2f} s, offline {theirs} tokens {their_seconds:.2f} s: {ratio:.3f}",
                flush=True,
            )
    await engine.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="nano")
    parser.add_argument("--task", default="countdown")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, default=None)
    a = parser.parse_args()
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    rows = asyncio.run(measure(a))
    ratios = [r.ratio for r in rows]
    print(f"ratio min {min(ratios):.3f}  median {statistics.median(ratios):.3f}  max {max(ratios):.3f}  (wanted 0.97)")
    save(a.json, rows)


if __name__ == "__main__":
    main()
