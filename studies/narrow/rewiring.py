"""Rewiring experts while decoding (arXiv 2510.14853) on a small mixture of experts.

A policy of the Llama family with eight experts learns two languages. Its routers are then disturbed, and each request
mends them for itself: at the end of its prompt and every so many tokens a few gradient steps on the loss of the text so
far, with respect to one added vector for each chosen layer. The model stays as it is; the next request begins at zero.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from transformers import OlmoeConfig, OlmoeForCausalLM

from studies.lab.claim import Measured

VOCAB, LENGTH = 24, 96
Model = Any


@dataclass(frozen=True, slots=True)
class Rewiring:
    """How a request mends its routers. Values were chosen on seed 1000, which is judged nowhere."""

    steps: int = 3
    """Gradient steps each time."""
    rate: float = 0.3
    """Of Adam."""
    every: int = 32
    """Tokens between two adaptations."""
    share: float = 1.0
    """Of the layers: those whose routers are surest."""


def routers(model: Model) -> list[Any]:
    """One for each layer."""
    return [layer.mlp.gate for layer in model.model.layers]


@contextmanager
def rewired(model: Model, deltas: Sequence[Tensor | None]) -> Generator[list[Tensor]]:
    """Routers that add these vectors to their logits, and what they chose: experts by token, layer by layer."""
    chosen: list[Tensor] = []
    handles = [
        gate.register_forward_hook(lambda g, args, out, delta=delta: _routed(g, out[0], delta, chosen))
        for gate, delta in zip(routers(model), deltas, strict=True)
    ]
    try:
        yield chosen
    finally:
        for handle in handles:
            handle.remove()


def _routed(gate: Any, logits: Tensor, delta: Tensor | None, chosen: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    moved = logits if delta is None else logits + delta
    top, index = torch.topk(torch.softmax(moved.float(), -1), gate.top_k, -1)
    if gate.norm_topk_prob:
        top = top / top.sum(-1, keepdim=True)
    chosen.append(index)
    return moved, top.to(logits.dtype), index


def loss(model: Model, ids: Tensor, deltas: Sequence[Tensor | None], begin: int = 1) -> Tensor:
    """Mean loss of the tokens from `begin` on, in nats."""
    with rewired(model, deltas):
        logits = model(ids).logits
    return F.cross_entropy(logits[:, begin - 1 : -1].flatten(0, 1).float(), ids[:, begin:].flatten())


def adapted(model: Model, ids: Tensor, how: Rewiring, deltas: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The vectors after a few steps on this text of one request."""
    mine = [None if d is None else d.detach().clone().requires_grad_() for d in deltas]
    moved = [d for d in mine if d is not None]
    adam = torch.optim.Adam(moved, how.rate)
    for _ in range(how.steps):
        for delta, gradient in zip(moved, torch.autograd.grad(loss(model, ids, mine), moved), strict=True):
            delta.grad = gradient
        adam.step()
    return [None if d is None else d.detach() for d in mine]


def beginning(model: Model, ids: Tensor, how: Rewiring) -> list[Tensor | None]:
    """Zeros for the layers that are surest on this text, None for the others."""
    sure: list[float] = []
    handles = [
        gate.register_forward_hook(
            lambda _g, _a, out: sure.append(float(torch.softmax(out[0].float(), -1).amax(-1).mean()))
        )
        for gate in routers(model)
    ]
    with torch.no_grad():
        model(ids)
    for handle in handles:
        handle.remove()
    count = max(round(how.share * len(sure)), 1)
    kept = set(sorted(range(len(sure)), key=lambda k: -sure[k])[:count])
    experts = model.config.num_experts
    return [torch.zeros(experts) if k in kept else None for k in range(len(sure))]


def decoded(model: Model, prompt: Sequence[int], tokens: int, how: Rewiring | None, seed: int) -> list[int]:
    """A continuation; the cache of keys and values is not kept over a change, so each token reads the text anew."""
    rng = torch.Generator().manual_seed(seed)
    ids = torch.tensor([list(prompt)])
    deltas: list[Tensor | None] = [None] * len(routers(model)) if how is None else beginning(model, ids, how)
    for k in range(tokens):
        if how is not None and k % how.every == 0:
            deltas = adapted(model, ids, how, deltas)
        with torch.no_grad(), rewired(model, deltas):
            last = torch.softmax(model(ids).logits[0, -1].float(), -1)
        ids = torch.cat([ids, torch.multinomial(last, 1, generator=rng)[None]], 1)
    return ids[0, len(prompt) :].tolist()


def languages(seed: int) -> list[np.ndarray]:
    """Two Markov chains of few successors a token, over the same tokens."""
    rng = np.random.default_rng((seed, 7))
    return [rng.dirichlet(np.full(VOCAB, 0.08), VOCAB) for _ in range(2)]


def written(chain: np.ndarray, count: int, rng: np.random.Generator, length: int = LENGTH) -> Tensor:
    """Texts in a language."""
    ids = np.zeros((count, length), np.int64)
    ids[:, 0] = rng.integers(VOCAB, size=count)
    ends = chain.cumsum(1)
    for t in range(1, length):
        ids[:, t] = np.minimum((rng.random(count)[:, None] > ends[ids[:, t - 1]]).sum(1), VOCAB - 1)
    return torch.tensor(ids)


@cache
def trained(seed: int, steps: int = 250) -> Model:
    """The policy, made in some seconds."""
    torch.manual_seed(seed)
    config = OlmoeConfig(
        vocab_size=VOCAB, hidden_size=48, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, num_experts=8, num_experts_per_tok=2, max_position_embeddings=256, pad_token_id=None,
        eos_token_id=None, bos_token_id=None,
    )  # fmt: skip
    model: Any = OlmoeForCausalLM(config)
    adam, rng = torch.optim.AdamW(model.parameters(), 5e-3), np.random.default_rng((seed, 8))
    both = languages(seed)
    zero: list[Tensor | None] = [None, None]
    for step in range(steps):
        for group in adam.param_groups:
            group["lr"] = 5e-3 * 0.5 * (1 + math.cos(math.pi * step / steps))
        ids = torch.cat([written(chain, 8, rng) for chain in both])
        adam.zero_grad()
        loss(model, ids, zero).backward()
        adam.step()
    return model.eval()


@contextmanager
def disturbed(model: Model, seed: int, noise: float) -> Generator[None]:
    """Routers with noise added to their weights, in units of their own spread."""
    rng = torch.Generator().manual_seed(seed)
    gates: list[Any] = routers(model)
    before = [gate.weight.detach().clone() for gate in gates]
    with torch.no_grad():
        for gate in gates:
            gate.weight += noise * gate.weight.std() * torch.randn(gate.weight.shape, generator=rng)
    try:
        yield
    finally:
        with torch.no_grad():
            for gate, weight in zip(gates, before, strict=True):
                gate.weight.copy_(weight)


@dataclass(frozen=True)
class Rewired:
    """Losses of continuations, nats per token, mean over texts."""

    plain: float
    adapted: float
    random: float
    """With vectors of the same length in random directions."""
    rerouted: float
    """Share of tokens of the continuation that go to other experts."""


def compared(seed: int, noise: float, how: Rewiring, texts: int = 12) -> Rewired:
    """The first half of each text adapts, the second is judged."""
    model, rng = trained(seed), np.random.default_rng((seed, 9))
    half, sums = LENGTH // 2, np.zeros(4)
    drawn = torch.Generator().manual_seed(seed)
    with disturbed(model, seed, noise):
        for chain in languages(seed):
            for ids in written(chain, texts // 2, rng):
                text = ids[None]
                zero = beginning(model, text[:, :half], how)
                mine = adapted(model, text[:, :half], how, zero)
                other: list[Tensor | None] = []
                for delta in mine:
                    far = None if delta is None else torch.randn(delta.shape, generator=drawn)
                    other.append(None if delta is None or far is None else far * delta.norm() / far.norm())
                with torch.no_grad():
                    told = [float(loss(model, text, d, half)) for d in (zero, mine, other)]
                    picked = [_picked(model, text, d)[:, half:] for d in (zero, mine)]
                same = (picked[0].sort(-1).values == picked[1].sort(-1).values).all(-1).float().mean()
                sums += [*told, 1 - float(same)]
    return Rewired(*(sums / (2 * (texts // 2))).tolist())


def _picked(model: Model, text: Tensor, deltas: Sequence[Tensor | None]) -> Tensor:
    with rewired(model, deltas) as chosen:
        model(text)
    return torch.stack(chosen)


NOISE = 2.0
"""Of the routers where the claim is judged."""


def check(seed: int) -> Measured:
    """Loss of continuations with routers mended by the text so far and as they are, both disturbed."""
    torch.set_num_threads(1)
    found = compared(seed, NOISE, Rewiring())
    return Measured(found.adapted, found.plain, acted={"tokens rerouted": found.rerouted})
