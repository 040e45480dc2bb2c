"""The sampling distribution, for a whole batch at once: temperature, then top-k, then top-p, then one inverse-CDF draw
per row.

A row of temperature 0 takes the argmax. Ties in top-k and top-p go to the lower id.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Counter-based randomness: the n-th number of a request's stream is a hash of its key and n.
#
# No state is kept, so a sample never depends on what else is in the batch, on pauses or on the order of steps. The hash
# is SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014), computed for the
# whole batch at once.

Keys = NDArray[np.uint64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1


def _mix(z: Keys) -> Keys:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def stream_key(seed: int) -> int:
    """Key of the stream of any integer; hashed twice so that streams of neighbouring seeds do not overlap."""
    key = np.array([seed < 0], dtype=np.uint64)
    rest = seed
    while True:
        key = _mix((key ^ np.uint64(rest & _MASK)) + _GAMMA)
        rest >>= 64
        if rest in (0, -1):
            return int(_mix(key ^ np.uint64(0xD6E8FEB86659FD93))[0])


def passed_over(key: int, count: int) -> int:
    """Key of the stream that begins with the count-th number of another one: their counters differ by a constant."""
    return (key + count * int(_GAMMA)) & _MASK


def uniforms(keys: Keys, counters: NDArray[np.int64]) -> NDArray[np.float64]:
    """One number in [0, 1) per key: the counter-th of its stream, 53 bits."""
    z = _mix(keys + (counters.astype(np.uint64) + np.uint64(1)) * _GAMMA)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SamplingRows:
    """How each row draws; `None` where every row has the neutral value, which saves the work.

    Made once for as long as the rows stay, so that no step asks the device which rows want what.
    """

    temperature: Tensor | None = None
    greedy: Tensor | None = None
    """Which rows take the argmax."""
    cut: Tensor | None = None
    """Rows that top-k or top-p cuts."""
    top_k: Tensor | None = None
    """Of those rows."""
    top_p: Tensor | None = None

    @classmethod
    def of(cls, temperature: Floats, top_k: Ints, top_p: Floats, vocab: int, device: torch.device) -> SamplingRows:
        """The distribution of rows with these knobs."""
        k = np.where(top_k == 0, vocab, top_k)
        cut = np.flatnonzero((k < vocab) | (top_p < 1))

        def there(array: np.ndarray[Any, Any], matters: bool) -> Tensor | None:
            return torch.from_numpy(array.copy()).to(device) if matters else None

        own = bool(len(cut))
        return cls(
            there(temperature, bool((temperature != 1).any())), there(temperature == 0, bool((temperature == 0).any())),
            there(cut, own), there(k[cut], own), there(top_p[cut], own),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Drawn:
    """What each row drew, and its log-prob under the distribution (NaN where greedy)."""

    token: Tensor
    sampling_logprob: Tensor


def wide(logits: Tensor) -> Tensor:
    """Logits in which log-probs can be told: a model of half precision gives them too coarse a grid."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


def log_law(logits: Tensor, distribution: SamplingRows) -> Tensor:
    """Log-probs (rows, vocab) after temperature, top-k and top-p; greedy rows at temperature 1."""
    scaled = logits
    if distribution.temperature is not None:
        divisor = (
            distribution.temperature
            if distribution.greedy is None
            else torch.where(distribution.greedy, 1.0, distribution.temperature)
        )
        scaled = logits / divisor.to(logits.dtype).unsqueeze(1)
    if distribution.cut is not None and distribution.top_k is not None and distribution.top_p is not None:
        scaled = _truncated(scaled, distribution.cut, distribution.top_k, distribution.top_p)
    return torch.log_softmax(scaled, -1)


def draw(logits: Tensor, distribution: SamplingRows, uniform: Tensor) -> Drawn:
    """Draw one token per row of logits (rows, vocab) with uniforms in [0, 1)."""
    sampling_logprob = log_law(logits, distribution)
    token = _inverse_cdf(sampling_logprob.exp(), uniform)
    if distribution.greedy is not None:
        token = torch.where(distribution.greedy, logits.argmax(-1), token)
    chosen = sampling_logprob.gather(1, token.unsqueeze(1)).squeeze(1)
    if distribution.greedy is not None:
        chosen = torch.where(distribution.greedy, math.nan, chosen)
    return Drawn(token, chosen)


def _inverse_cdf(probs: Tensor, uniform: Tensor) -> Tensor:
    """First token whose cumulative probability exceeds uniform × total; never one of probability zero."""
    total = probs.cumsum(-1, dtype=torch.float64)
    top = total[:, -1:]
    target = torch.minimum(uniform.unsqueeze(1) * top, top * (1 - 2.0**-52))
    # The clamp is for rows of NaN only, which the caller finds and fails.
    return torch.searchsorted(total, target, right=True).squeeze(1).clamp(max=probs.shape[1] - 1)


def _truncated(logits: Tensor, cut: Tensor, k: Tensor, p: Tensor) -> Tensor:
    """Set to -inf what top-k and top-p (the smallest set reaching top_p) exclude, in the rows to be cut."""
    ordered, index = logits[cut].sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(logits.shape[1], device=logits.device)
    ordered = ordered.masked_fill(rank >= k.unsqueeze(1), -math.inf)
    mass = ordered.double().softmax(-1)
    before = mass.cumsum(-1) - mass
    ordered = ordered.masked_fill((before >= p.unsqueeze(1)) & (rank > 0), -math.inf)
    out = logits.clone()
    out[cut] = torch.empty_like(ordered).scatter_(1, index, ordered)
    return out
