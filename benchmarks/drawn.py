"""Whether samples are what their seeds draw from the policy, up to rounding.

Two engines whose batches have other shapes add numbers in another order, and their log-probs differ in the last digits.
A draw that stands closer to a boundary of the cumulative distribution than these digits reach can then give the
neighbouring token, and after it all tokens are others. So samples are not held against another engine's. Each token is
held against the cumulative distribution of the model itself in double precision, after the sample's own tokens: how far
the request's draw stands outside the token's interval (0 = inside), and how far the log-prob that was told stands from
the model's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from rolltree.engine.local.sampling import passed_over, stream_key, uniforms
from rolltree.engine.protocol import Request, Sample

Floats = NDArray[np.float64]
ROUNDING = 1e-4
"""How far a log-prob in single precision may stand from the model's, and with it a draw from its interval."""


@dataclass(frozen=True)
class Drawn:
    """Of every token of a sample."""

    outside: Floats
    """Between the draw and the token's interval; 0 = inside."""
    margin: Floats
    """Between the draw and the nearest boundary of the cumulative distribution."""
    off: Floats
    """Between the log-prob that was told and the model's."""


@dataclass(frozen=True)
class Found:
    """Of all samples of a run."""

    tokens: int
    outside: int
    """Tokens whose interval the draw is not in."""
    worst_outside: float
    worst_off: float

    @property
    def wrong(self) -> str:
        """What rounding does not explain; empty = nothing."""
        if not self.worst_off <= ROUNDING:
            return f"a log-prob is {self.worst_off:.1e} from the model's"
        if not self.worst_outside <= ROUNDING:
            return f"a draw is {self.worst_outside:.1e} outside the interval of its token"
        return ""


def differ(one: Sample, other: Sample) -> bool:
    """Whether two samples have other tokens."""
    return not np.array_equal(one.actions, other.actions)


def check(model: Any, asked: Sequence[Request], samples: Sequence[Sample]) -> Found:
    """Of samples; an error where one is not what its seed draws."""
    found = verdict(judged(model, asked, samples))
    if found.wrong:
        raise RuntimeError(f"samples are not what their seeds draw: {found.wrong}")
    return found


def verdict(found: Sequence[Drawn]) -> Found:
    """The worst of all."""
    outside = np.concatenate([one.outside for one in found])
    off = np.concatenate([one.off for one in found])
    return Found(len(outside), int((outside > 0).sum()), float(outside.max()), float(off.max()))


def judged(model: Any, asked: Sequence[Request], samples: Sequence[Sample]) -> list[Drawn]:
    """By a causal model in double precision, for requests at temperature 1 with seeds; equal prompts stand together."""
    out = list[Drawn]()
    pairs = zip(asked, samples, strict=True)
    for _, group in groupby(pairs, key=lambda pair: pair[0].prefix.tobytes()):
        mine = list(group)
        logp = _laws(model, mine[0][0].prefix, [sample.actions for _, sample in mine])
        out += [_drawn(request, sample, law) for (request, sample), law in zip(mine, logp, strict=True)]
    return out


def doubled(model: Any) -> Any:
    """A model whose numbers are double precision."""
    return model.double().eval()


@torch.inference_mode()
def _laws(model: Any, prompt: Any, written: Sequence[Any]) -> list[Floats]:
    """Log-probs of the whole vocabulary before each token."""
    cache = DynamicCache()
    begun = model(torch.as_tensor(prompt[None].astype(np.int64)), past_key_values=cache, logits_to_keep=1).logits
    cache.batch_repeat_interleave(len(written))
    ids = torch.zeros(len(written), max(map(len, written)), dtype=torch.long)
    for i, tokens in enumerate(written):
        ids[i, : len(tokens)] = torch.as_tensor(tokens.astype(np.int64))
    rest = model(ids, past_key_values=cache).logits[:, :-1]
    logits = torch.cat([begun.expand(len(written), -1, -1), rest], 1)
    logp = torch.log_softmax(logits, -1).numpy()
    return [logp[i, : len(tokens)] for i, tokens in enumerate(written)]


def _drawn(request: Request, sample: Sample, logp: Floats) -> Drawn:
    s, at = request.sampling, np.arange(len(sample.actions))
    if s.seed is None or s.temperature != 1 or s.top_k or s.top_p != 1 or s.hook is not None:
        raise ValueError("only draws of a seed at temperature 1, of the whole distribution, can be judged")
    keys = np.full(len(at), passed_over(stream_key(s.seed), s.offset), np.uint64)
    draw = uniforms(keys, at)
    high = np.exp(logp).cumsum(1)
    low = np.concatenate([np.zeros((len(at), 1)), high[:, :-1]], 1)
    upper, lower = high[at, sample.actions], low[at, sample.actions]
    return Drawn(
        np.maximum(np.maximum(lower - draw, draw - upper), 0.0),
        np.abs(high[:, :-1] - draw[:, None]).min(1),
        np.abs(sample.logp - logp[at, sample.actions]),
    )
