"""The sampling distribution, for a whole batch at once: temperature, then top-k, then top-p, then one inverse-CDF draw
per row.

A row of temperature 0 takes the argmax. Ties in top-k and top-p go to the lower id.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class SamplingRows:
    """How each row draws; `None` where every row has the neutral value, which saves the work."""

    temperature: Tensor | None = None
    top_k: Tensor | None = None
    top_p: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """What each row drew, and its log-prob under the distribution (NaN where greedy)."""

    token: Tensor
    sampling_logprob: Tensor


def wide(logits: Tensor) -> Tensor:
    """Logits in which log-probs can be told: a model of half precision gives them too coarse a grid."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


def draw(logits: Tensor, distribution: SamplingRows, uniform: Tensor) -> Drawn:
    """Draw one token per row of logits (rows, vocab) with uniforms in [0, 1)."""
    scaled = logits
    greedy = None
    if distribution.temperature is not None:
        greedy = distribution.temperature == 0
        scaled = logits / torch.where(greedy, 1.0, distribution.temperature).to(logits.dtype).unsqueeze(1)
    if distribution.top_k is not None or distribution.top_p is not None:
        scaled = _truncate(scaled, distribution)
    sampling_logprob = torch.log_softmax(scaled, -1)
    token = _inverse_cdf(sampling_logprob.exp(), uniform)
    if greedy is not None and bool(greedy.any()):
        token = torch.where(greedy, logits.argmax(-1), token)
    chosen = sampling_logprob.gather(1, token.unsqueeze(1)).squeeze(1)
    if greedy is not None:
        chosen = torch.where(greedy, math.nan, chosen)
    return Drawn(token, chosen)


def _inverse_cdf(probs: Tensor, uniform: Tensor) -> Tensor:
    """First token whose cumulative probability exceeds uniform × total; never one of probability zero."""
    total = probs.cumsum(-1, dtype=torch.float64)
    top = total[:, -1:]
    target = torch.minimum(uniform.unsqueeze(1) * top, top * (1 - 2.0**-52))
    # The clamp is for rows of NaN only, which the caller finds and fails.
    return torch.searchsorted(total, target, right=True).squeeze(1).clamp(max=probs.shape[1] - 1)


def _truncate(logits: Tensor, distribution: SamplingRows) -> Tensor:
    """Set to -inf what top-k and top-p (the smallest set reaching top_p) exclude, in the rows that ask for it."""
    rows, vocab = logits.shape
    k = torch.full((rows,), vocab, device=logits.device) if distribution.top_k is None else distribution.top_k
    k = torch.where(k == 0, vocab, k)
    p = (
        torch.ones(rows, dtype=torch.float64, device=logits.device)
        if distribution.top_p is None
        else distribution.top_p
    )
    pick = torch.nonzero((k < vocab) | (p < 1)).squeeze(1)
    ordered, index = logits[pick].sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(vocab, device=logits.device)
    ordered = ordered.masked_fill(rank >= k[pick].unsqueeze(1), -math.inf)
    mass = ordered.double().softmax(-1)
    before = mass.cumsum(-1) - mass
    ordered = ordered.masked_fill((before >= p[pick].unsqueeze(1)) & (rank > 0), -math.inf)
    out = logits.clone()
    out[pick] = torch.empty_like(ordered).scatter_(1, index, ordered)
    return out
