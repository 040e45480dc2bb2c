"""Guesses from a distribution like the one that will be drawn from, knowing the number that will decide the draw.

Token n of a request is the one at which the cumulative probability passes u_n, a number that is known beforehand. If
the drafter's cumulative probabilities were exact, its token at u_n would be right without fail. They are not, so the
place is taken to be off by a Laplace-distributed error, and a token's chance is the probability that the true place
falls into its interval. A small error gives the drafter's own draw, a large one its likeliest tokens. (Ours.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rolltree.engine.local.sampling import SamplingRows, log_law, wide
from rolltree.engine.local.speculate.drafter import DraftAsk
from rolltree.engine.local.speculate.tree import Guess

ERROR = 0.05
"""Scale of the error of a cumulative probability."""


def guesses(logits: Tensor, asks: Sequence[DraftAsk], error: float = ERROR) -> list[list[Guess]]:
    """The likeliest tokens for each ask, given a drafter's logits (asks, vocab)."""
    how = [ask.sampling for ask in asks]
    rows = SamplingRows.of(
        np.array([s.temperature for s in how], np.float64), np.array([s.top_k for s in how], np.int64),
        np.array([s.top_p for s in how], np.float64), logits.shape[-1], logits.device,
    )  # fmt: skip
    probs = log_law(wide(logits), rows).exp().double()
    uniform = torch.tensor([ask.uniform for ask in asks], dtype=torch.float64, device=logits.device)
    chance = chances(probs, uniform, error)
    if rows.greedy is not None:
        chance = torch.where(rows.greedy.unsqueeze(1), probs, chance)
    most = max(ask.most for ask in asks)
    value, token = (t.tolist() for t in chance.topk(min(most, chance.shape[1]), -1))
    return [
        [Guess(t, c) for t, c in zip(token[i][: ask.most], value[i][: ask.most], strict=True) if c > 0]
        for i, ask in enumerate(asks)
    ]


def chances(probs: Tensor, uniform: Tensor, error: float) -> Tensor:
    """Probability of every token (rows, vocab) to be drawn with these numbers, the true place being off by `error`."""
    upper = probs.cumsum(-1)
    edges = torch.cat((torch.zeros_like(upper[:, :1]), upper), -1)
    far = (edges - uniform.unsqueeze(1)) / error
    below = torch.where(far < 0, 0.5 * far.clamp(max=0).exp(), 1 - 0.5 * (-far.clamp(min=0)).exp())
    return below.diff(dim=-1) / (below[:, -1:] - below[:, :1])
