"""Local engine against transformers `generate`: the same model, requests and threads, alternating in one process.

    python benchmarks/engine.py [--model nano] [--batch 64 256] [--repeats 5] [--threads 2] [--clock cpu]
        [--only uniform ragged forked tree leaves] [--json FILE]

uniform  distinct prompts of one length, everybody makes the same number of tokens
ragged   prompts of different lengths, samples end at eos; twice as many requests as the batch holds
forked   groups of eight samples of long prompts
tree     long prompts, forked four ways at the root and after every 64 tokens, three times; `generate` is called once
         for each depth, with the whole path to every node as its prompt, and makes the same tokens
leaves   the same trees, counted in tokens of whole paths, against `generate` making every path by itself

Requests say whether anybody will go on from what they write, as strategies do: the flat ones nobody.
Every ratio compares two runs made one after the other, so a busy machine slows both; min, median and max over repeats.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import clock, save
from numpy.typing import NDArray
from transformers import LlamaConfig, PreTrainedModel
from transformers.models.llama import LlamaForCausalLM

from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import Codec, Request, Sampling
from rolltree.policy.load import load_model

TREES = ("tree", "leaves")
Prompts = list[NDArray[np.int64]]
GROUP = 8
DEPTH, WAYS, SEGMENT = 3, 4, 64
"""Of the trees: how often a path forks, how many ways, and after how many tokens."""


class PlainCodec:
    """Ids without text, for a model without a tokenizer; nothing measured here decodes."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.eos_id = 0

    def encode(self, text: str) -> list[int]:
        return [1 + ord(c) % (self.vocab_size - 1) for c in text]

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        return "".join(chr(0x100 + int(i)) for i in ids)


@dataclass(frozen=True)
class Row:
    """One comparison. Rates are generated tokens per second (medians); ratios are ours over theirs."""

    case: str
    batch: int
    requests: int
    threads: int
    ours: float
    theirs: float
    ratio_min: float
    ratio_median: float
    ratio_max: float
    prefilled: float
    """Share of the prefix tokens the engine really computed."""


@dataclass(frozen=True)
class Case:
    """Requests and how they end."""

    name: str
    prompts: Prompts
    max_tokens: int
    ignore_eos: bool
    depth: int = 1
    """Stretches of `max_tokens` on a path; more than one is a tree that forks before each."""


def random_model(context: int = 1024) -> tuple[PreTrainedModel, Codec]:
    """Random weights in the shape of the packaged character policy (0.86 M parameters, vocabulary 100)."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=100,
        hidden_size=128,
        intermediate_size=344,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=context,
        eos_token_id=0,
        bos_token_id=0,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval(), PlainCodec(100)


def cases(vocab: int, batch: int, seed: int) -> list[Case]:
    """The cases for one batch size."""
    rng = np.random.default_rng(seed)

    def prompt(length: int) -> NDArray[np.int64]:
        return rng.integers(1, vocab, length)

    lengths = rng.integers(8, 64, 2 * batch)
    shared = [prompt(256) for _ in range(batch // GROUP)]
    return [
        Case("uniform", [prompt(32) for _ in range(batch)], 128, ignore_eos=True),
        Case("ragged", [prompt(int(n)) for n in lengths], 256, ignore_eos=False),
        Case("forked", [p for p in shared for _ in range(GROUP)], 64, ignore_eos=True),
        *(Case(name, shared[: batch // WAYS**DEPTH], SEGMENT, ignore_eos=True, depth=DEPTH) for name in TREES),
    ]


def theirs(model: PreTrainedModel, case: Case, batch: int, eos: int) -> tuple[int, float]:
    """Tokens and seconds of transformers: batches of equal size, padded on the left, until the longest has ended."""
    begin = clock()
    if case.name == "leaves":
        prompts = [p for p in case.prompts for _ in range(WAYS**case.depth)]
        made, _ = _generated(model, Case("", prompts, case.depth * case.max_tokens, ignore_eos=True), batch, eos)
        return made, clock() - begin
    made, prompts = 0, case.prompts
    for _ in range(case.depth):
        prompts = [p for p in prompts for _ in range(WAYS if case.depth > 1 else 1)]
        more, prompts = _generated(model, replace(case, prompts=prompts), batch, eos)
        made += more
    return made, clock() - begin


def _generated(model: PreTrainedModel, case: Case, batch: int, eos: int) -> tuple[int, Prompts]:
    """Tokens made for all prompts, and the prompts with what was made."""
    generator: Any = model
    made, texts = 0, Prompts()
    for at in range(0, len(case.prompts), batch):
        prompts = case.prompts[at : at + batch]
        width = max(len(p) for p in prompts)
        ids, mask = torch.full((len(prompts), width), eos), torch.zeros(len(prompts), width, dtype=torch.long)
        for i, p in enumerate(prompts):
            ids[i, width - len(p) :], mask[i, width - len(p) :] = torch.from_numpy(p), 1
        out = generator.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=case.max_tokens,
            min_new_tokens=case.max_tokens if case.ignore_eos else None,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            eos_token_id=None if case.ignore_eos else eos,
            pad_token_id=eos,
        )[:, width:]
        if case.ignore_eos:
            made += out.numel()
        else:
            ended = (out == eos).int().cumsum(1)
            made += int((ended - (out == eos).int() == 0).sum())
        texts += [np.concatenate([p, new]) for p, new in zip(prompts, out.numpy(), strict=True)]
    return made, texts


async def ours(engine: LocalEngine, case: Case) -> tuple[int, float, float]:
    """Tokens, seconds and share of prefix tokens computed."""
    sampling = Sampling(max_tokens=case.max_tokens, ignore_eos=case.ignore_eos)
    begin = clock()
    if case.depth > 1:
        trees = await asyncio.gather(
            *(_grown(engine, p, sampling, case.depth, f"{id(case)}/{i}") for i, p in enumerate(case.prompts))
        )
        samples = [sample for tree in trees for sample in tree]
    else:
        asked = (_await(engine, Request(p, sampling, forks="none")) for p in case.prompts)
        samples = await asyncio.gather(*asked)
    seconds = clock() - begin
    prefix = sum(len(p) for p in case.prompts)
    made = sum(len(s.actions) for s in samples)
    if case.name == "leaves":
        made = len(case.prompts) * WAYS**case.depth * case.depth * case.max_tokens
    return made, seconds, sum(s.prefilled for s in samples) / prefix


async def _grown(
    engine: LocalEngine, prefix: NDArray[np.int64], sampling: Sampling, depth: int, name: str
) -> list[Any]:
    """All samples of the tree below a prefix."""
    forks = "planned" if depth > 1 else "none"
    asked = (_await(engine, Request(prefix, sampling, affinity=name, forks=forks)) for _ in range(WAYS))
    samples = list(await asyncio.gather(*asked))
    if depth > 1:
        below = (_grown(engine, np.concatenate([prefix, s.actions]), sampling, depth - 1, name) for s in list(samples))
        samples += [s for part in await asyncio.gather(*below) for s in part]
    return samples


async def _await(engine: LocalEngine, request: Request) -> Any:
    return await engine.submit(request)


def rows(
    model: str | None = None,
    batches: Sequence[int] = (64, 256),
    repeats: int = 5,
    threads: int = 2,
    only: Sequence[str] = (),
    report: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """All comparisons. `model` is a name for `load_model`; None is a random model of the packaged policy's shape."""
    torch.set_num_threads(threads)
    if model is None:
        net, codec = random_model()
    else:
        loaded = load_model(model)
        net, codec = loaded.model, loaded.codec
    out = list[Row]()
    for batch in batches:
        for name in [c.name for c in cases(codec.vocab_size, batch, 0) if not only or c.name in only]:
            out.append(_row(net, codec, name, batch, repeats, threads))
            report(out[-1])
    return out


def _row(net: PreTrainedModel, codec: Codec, name: str, batch: int, repeats: int, threads: int) -> Row:
    async def run() -> Row:
        engine = LocalEngine(net, codec, max_batch=batch, seed=0)
        a, b, ratios, share, count = [], [], [], [], 0
        for repeat in range(repeats + 1):
            # New prompts every time, so that no repeat finds the prefixes of an earlier one.
            case = next(c for c in cases(codec.vocab_size, batch, repeat) if c.name == name)
            with torch.no_grad():
                tokens, seconds = theirs(net, case, batch, codec.eos_id)
            made, took, prefilled = await ours(engine, case)
            if repeat:
                a.append(made / took)
                b.append(tokens / seconds)
                ratios.append(a[-1] / b[-1])
                share.append(prefilled)
            count = len(case.prompts)
        await engine.close()
        middle = statistics.median
        return Row(
            name, batch, count, threads, middle(a), middle(b), min(ratios), middle(ratios), max(ratios), middle(share)
        )

    return asyncio.run(run())


def show(row: Row) -> None:
    """One line of the table."""
    print(
        f"{row.case:8} batch {row.batch:4}  {row.ours:9.0f} tok/s  transformers {row.theirs:9.0f} tok/s  "
        f"ratio {row.ratio_min:5.2f} / {row.ratio_median:5.2f} / {row.ratio_max:5.2f} prefix paid {row.prefilled:4.0%}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a name, folder or hub id; default: random weights in nano's shape")
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[], choices=["uniform", "ragged", "forked", *TREES])
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: on a machine that others use")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    clock.kind = args.clock
    print(
        f"torch {torch.__version__}, {args.threads} threads, {args.clock} clock, min / median / max of {args.repeats}"
    )
    out = rows(args.model, args.batch, args.repeats, args.threads, args.only, show)
    save(args.json, out)


if __name__ == "__main__":
    main()
