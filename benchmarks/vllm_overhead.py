"""Strategy and hand over vLLM against vLLM's own offline `generate`: the same requests in one process.

    .venv-vllm/bin/python benchmarks/vllm_overhead.py [--model nano] [--prompts 8] [--group 8] [--tokens 256]
        [--rounds 9] [--json FILE]

Three arms do the same work, and every round begins with another of them:

  hand      a strategy grows groups of independent rollouts on a task, through `grow`
  async     vLLM's `AsyncLLM` alone, every request awaited for its last output only
  offline   vLLM's `LLM.generate`

Nothing ends a rollout before `--tokens`, so a round is long and all three make the same tokens. The requests the hand
sends are written down in a round that is thrown away and then put to the other two as they were: ids, distribution,
seed, stop ids, log-probs. hand / offline is what is wanted at 0.97; async / offline is vLLM's own price of answering
many callers by itself, and hand / async is ours. `hand` and `async` share one engine, `offline` has its own, and only
one of them works at a time. Tokens a second are told by the wall clock and by the processor time of all processes
together, which other programs on the machine distort much less; what of that is spent in this process stands beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
from machine import save

from rolltree.engine.protocol import Sampling
from rolltree.engine.segments import Piece, SegmentEngine, SegmentRequest
from rolltree.engine.vllm import start
from rolltree.engine.vllm.start import cpu_settings
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.policy.load import load_model
from rolltree.task.registry import load_task

ARMS = ("hand", "async", "offline")


@dataclass(frozen=True, slots=True)
class Row:
    """One arm in one round."""

    model: str
    round: int
    place: int
    """Which of the three it was in its round."""
    arm: str
    requests: int
    tokens: int
    seconds: float
    cpu_seconds: float
    """Processor seconds of this process and vLLM's together."""
    front_seconds: float
    """Of this process alone, where the hand and vLLM's front work."""
    load: float
    """Programs that ran or wanted to, over the last minute."""


class Recorder:
    """A backend that writes down what it is asked."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.asks: list[SegmentRequest] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def write(self, ask: SegmentRequest) -> AsyncGenerator[Piece]:
        self.asks.append(ask)
        async with aclosing(self._backend.write(ask)) as pieces:
            async for piece in pieces:
                yield piece


def params_of(ask: SegmentRequest) -> Any:
    """A recorded request as vLLM takes it, wanted whole."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    s = ask.sampling
    return SamplingParams(
        max_tokens=ask.most, temperature=s.temperature, top_p=s.top_p, top_k=s.top_k, seed=ask.seed,
        stop_token_ids=list(ask.ends), ignore_eos=True, logprobs=ask.alternatives, flat_logprobs=True,
        detokenize=False, output_kind=RequestOutputKind.FINAL_ONLY,
    )  # fmt: skip


def offline(llm: Any, asks: list[SegmentRequest]) -> int:
    """vLLM's own loop; returns how many tokens it made."""
    prompts = [{"prompt_token_ids": list(a.tokens), "cache_salt": a.salt} for a in asks]
    outputs = llm.generate(prompts, [params_of(a) for a in asks], use_tqdm=False)
    return sum(len(o.outputs[0].token_ids) for o in outputs)


async def alone(llm: Any, asks: list[SegmentRequest], names: str) -> int:
    """`AsyncLLM` and nothing else; returns how many tokens it made."""
    from vllm.inputs.engine import tokens_input

    async def one(i: int, ask: SegmentRequest) -> int:
        made = 0
        prompt = tokens_input(list(ask.tokens), cache_salt=f"{ask.salt}-alone")
        async for out in llm.generate(prompt, params_of(ask), f"{names}-{i}"):
            made = len(out.outputs[0].token_ids)
        return made

    return sum(await asyncio.gather(*(one(i, ask) for i, ask in enumerate(asks))))


async def measure(a: argparse.Namespace) -> list[Row]:
    from vllm import LLM

    loaded = load_model(a.model)
    inner = start(loaded, max_batch=256, gpu_memory_utilization=0.1)
    recorder = Recorder(inner.backend)
    recording, engine = SegmentEngine(recorder, loaded.codec, seed=0), inner
    llm = LLM(
        model=str(loaded.path), skip_tokenizer_init=True, dtype="float32", enforce_eager=True, max_num_seqs=256,
        enable_prefix_caching=True, disable_log_stats=True, max_logprobs=64, gpu_memory_utilization=0.1,
        **cpu_settings(),
    )  # fmt: skip
    task = load_task(a.task)
    items = list(islice(task.items("train", 0), a.prompts))

    async def hand(on: SegmentEngine) -> int:
        forest = await grow(
            Independent(a.group), on, task, items, seed=0, max_tokens=a.tokens, sampling=Sampling(ignore_eos=True)
        )
        return sum(len(n) for tree in forest for n in tree if n.role == "policy")

    await hand(recording)
    asks = [replace(ask) for ask in recorder.asks]
    made: dict[str, Callable[[int], Awaitable[int]]] = {
        "hand": lambda _: hand(engine),
        "async": lambda n: alone(inner.backend._llm, asks, f"alone-{n}"),
        "offline": lambda _: asyncio.sleep(0, offline(llm, asks)),
    }
    rows: list[Row] = []
    for number in range(a.rounds + 1):
        arms = [ARMS[(number + i) % len(ARMS)] for i in range(len(ARMS))]
        now: list[Row] = []
        for place, arm in enumerate(arms):
            began, busy, front = time.perf_counter(), processor_seconds(), time.process_time()
            tokens = await made[arm](number)
            seconds, spent = time.perf_counter() - began, processor_seconds() - busy
            front = time.process_time() - front
            load = round(os.getloadavg()[0], 2)
            now.append(Row(a.model, number, place, arm, len(asks), tokens, seconds, spent, front, load))
        if number:  # the first round warms all three up
            rows += now
            print(
                "  ".join(
                    f"{r.arm} {r.tokens} in {r.seconds:.2f} s (cpu {r.cpu_seconds:.2f}, {r.front_seconds:.2f} here)"
                    for r in now
                ),
                flush=True,
            )
    await engine.close()
    return rows


def processor_seconds() -> float:
    """Of this process and all it started."""
    me = psutil.Process()
    times = [p.cpu_times() for p in (me, *me.children(recursive=True))]
    return sum(t.user + t.system for t in times)


def ratios(rows: list[Row], arm: str, over: str, clock: str) -> list[float]:
    """Tokens a second of one arm over those of another, by round."""
    speed = {(r.arm, r.round): r.tokens / getattr(r, clock) for r in rows}
    return [speed[arm, n] / speed[over, n] for n in sorted({r.round for r in rows})]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="nano")
    parser.add_argument("--task", default="countdown")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, default=None)
    a = parser.parse_args()
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    rows = asyncio.run(measure(a))
    for arm, over in (("hand", "offline"), ("async", "offline"), ("hand", "async")):
        for clock in ("seconds", "cpu_seconds"):
            got = ratios(rows, arm, over, clock)
            told = f"min {min(got):.3f}  median {statistics.median(got):.3f}  max {max(got):.3f}"
            print(f"{arm} / {over} by {'wall clock' if clock == 'seconds' else 'processor'}: {told}")
    for arm in ARMS:
        mine = [r for r in rows if r.arm == arm]
        wall, cpu, front = (
            statistics.median(1e6 * getattr(r, clock) / r.tokens for r in mine)
            for clock in ("seconds", "cpu_seconds", "front_seconds")
        )
        print(f"{arm}: {wall:.0f} us a token, {cpu:.0f} us of the processor, {front:.0f} of them in this process")
    save(a.json, rows)


if __name__ == "__main__":
    main()
