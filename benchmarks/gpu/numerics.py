"""Does the card compute what the processor computes? Engine, packed loss and gradient, both attentions, pieces."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from work import Bench, Case, Shape

from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import Request, Sampling
from rolltree.policy.device import Compute
from rolltree.policy.language import Attention, LanguagePolicy
from rolltree.policy.packed import Packed, pack
from rolltree.tree.table import table

SMALL = Shape("small", 256, 512, 4, 8, 2, 1000)
LIMITS = {"float32": (2e-3, 0.9999), "bfloat16": (0.15, 0.98)}
"""Largest difference of a log-prob, and least cosine between gradients, that count as agreeing."""
CPU = torch.device("cpu")


class Plain:
    """A codec for random models: a character for every id."""

    eos_id = 0

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def encode(self, text: str) -> list[int]:
        return [1 + ord(c) % (self.vocab_size - 1) for c in text]

    def decode(self, ids: Any) -> str:
        return "".join(chr(33 + int(i) % 90) for i in ids)


def numerics(bench: Bench) -> None:
    shape = bench.shapes[0] if bench.toy else SMALL
    model = sharp(shape)
    case = Case("agent", 20, 4, 5, agent=True) if bench.toy else Case("agent", 60, 8, 20, trees=3, agent=True)
    trees, size = case.grow(shape.vocab), 40 if bench.toy else 100
    view = table(trees)
    packed = pack(view, view.loss_mask)
    truth = _told(model, packed, "blocks", CPU, Compute())
    kinds = [("float32", None), ("bfloat16", torch.bfloat16)]
    for attention in ("blocks", "flex"):
        for name, dtype in kinds:
            for piece in (0, size):
                what = f"packed {attention} {name}" + (f" in pieces of {piece}" if piece else "")
                inputs = (bench, model, packed, truth, what, name, attention, Compute(dtype, piece=piece))
                bench.attempt(what, lambda inputs=inputs: _compare(*inputs))
    if bench.device.type != "cpu":
        bench.attempt("compilations", lambda: _compilations(bench, model, shape))


def sampled(bench: Bench) -> None:
    """Texts of the processor's engine read on the card, and texts of the card's read on the processor."""
    shape = bench.shapes[0] if bench.toy else SMALL
    model = sharp(shape)
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        for graphs in (False, True) if bench.device.type == "cuda" else (False,):
            what = f"engine {name}" + (", recorded steps" if graphs else "")
            inputs = (bench, model, shape, what, name, dtype, graphs)
            bench.attempt(what, lambda inputs=inputs: _engine(*inputs))


def sharp(shape: Shape) -> Any:
    """A model sharper than its first weights, so that a mistake shows."""
    model = shape.build(CPU, torch.float32)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3.0) if p.ndim > 1 else None
    return model


def _compare(
    bench: Bench, model: Any, packed: Packed, truth: list[torch.Tensor], what: str, kind: str, attention: Attention,
    compute: Compute,
) -> None:  # fmt: skip
    backward = attention != "flex" or bench.device.type != "cpu"
    mine = _told(deepcopy(model).to(bench.device), packed, attention, bench.device, compute, backward=backward)
    off = float((mine[0] - truth[0]).abs().max())
    cosine = float(torch.cosine_similarity(mine[1], truth[1], dim=0)) if backward else None
    most, least = LIMITS[kind]
    agrees = off <= most and (cosine is None or cosine >= least)
    bench.add("numerics", what=what, logp_off=off, gradient_cosine=cosine, agrees=agrees)


def _told(
    model: Any, packed: Packed, attention: Attention, device: torch.device, compute: Compute, *, backward: bool = True
) -> list[torch.Tensor]:
    """Log-probs, and the gradient of a loss of them in one row."""
    policy = LanguagePolicy(model, attention=attention, compute=compute)
    weight = torch.from_numpy(np.random.default_rng(0).normal(size=len(packed.action))).float().to(device)
    model.zero_grad()
    with torch.set_grad_enabled(backward):
        logp = policy.read(packed).logp
    if backward:
        (logp * weight).sum().backward()
    grads = [p.grad.float().flatten().cpu() for p in model.parameters()] if backward else []
    return [logp.detach().float().cpu(), torch.cat(grads) if grads else torch.zeros(0)]


def _compilations(bench: Bench, model: Any, shape: Shape) -> None:
    """Kernels built while rows of many lengths are read: none may be built again for another length."""
    from torch._dynamo.utils import counters

    policy = LanguagePolicy(deepcopy(model).to(bench.device), attention="flex")
    built: list[int] = []
    for length in (40, 90, 170, 260, 420, 700, 1100, 1900):
        view = table(Case("group", length, 4, length // 4).grow(shape.vocab))
        policy.read(pack(view, view.loss_mask)).logp.sum().backward()
        built.append(int(counters["stats"]["unique_graphs"]))
    last = built[-1] - built[2]
    bench.add("numerics", what="kernels built for five further lengths", logp_off=None, gradient_cosine=None,
              agrees=last == 0, built=last)  # fmt: skip


def _engine(
    bench: Bench, model: Any, shape: Shape, what: str, kind: str, dtype: torch.dtype, graphs: bool
) -> None:  # fmt: skip
    rng = np.random.default_rng(1)
    long = rng.integers(1, shape.vocab, 40 if bench.toy else 600)
    prompts = [*(rng.integers(1, shape.vocab, n) for n in (5, 17, 40)), *[long] * 8]
    """A prompt that several requests share, and ends at many steps."""

    async def run() -> tuple[float, float, float, int]:
        here = LocalEngine(model, Plain(shape.vocab))
        there = LocalEngine(model, Plain(shape.vocab), device=bench.device, dtype=dtype, cuda_graphs=graphs)
        asked = [
            Request(p, Sampling(max_tokens=12 + 6 * i, seed=3 + i, ignore_eos=True, temperature=0.8))
            for i, p in enumerate(prompts)
        ]
        mine, theirs = [await asyncio.gather(*(engine.submit(r) for r in asked)) for engine in (here, there)]
        same = np.mean(np.concatenate([a.actions == b.actions for a, b in zip(mine, theirs, strict=True)]))
        read = written = 0.0
        for prompt, a, b in zip(prompts, mine, theirs, strict=True):
            told = await there.score(np.concatenate([prompt, a.actions]), len(prompt))
            read = max(read, float(np.abs(told.logp - a.logp).max()))
            told = await here.score(np.concatenate([prompt, b.actions]), len(prompt))
            written = max(written, float(np.abs(told.logp - b.logp).max()))
        steps = there._worker.core.graphs  # pyright: ignore[reportPrivateUsage]
        await here.close()
        await there.close()
        return read, written, float(same), 0 if steps is None else steps.repeated

    read, written, same, repeated = asyncio.run(run())
    agrees = max(read, written) <= LIMITS[kind][0] and (repeated > 0) == graphs
    bench.add("sampled", what=what, read_off=read, written_off=written, same_tokens=same, recorded_steps=repeated,
              agrees=agrees)  # fmt: skip
