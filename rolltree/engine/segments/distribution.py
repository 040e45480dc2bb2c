"""The distribution a token was drawn from, recovered from log-probs of the policy that stand beside it.

With temperature T, then top-k, then top-p, log q(a) = log p(a)/T − log Σ_{b kept} p(b)^{1/T}. The sum needs every kept
token: the whole vocabulary, or the k best when top-k keeps no more. Nothing is estimated: where too few alternatives
are reported the request is refused.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rolltree.engine.protocol import EngineError, Sampling
from rolltree.engine.segments.wire import Reach

Rows = NDArray[np.float64]


def neutral(s: Sampling, vocab: int) -> bool:
    """Whether the distribution is the policy itself."""
    return s.temperature == 1 and s.top_p >= 1 and (s.top_k == 0 or s.top_k >= vocab)


def alternatives_for(s: Sampling, *, top: int, entropy: bool, reach: Reach, who: str) -> int:
    """How many alternatives a request must bring back; raises where the engine cannot report enough."""
    own = neutral(s, reach.vocab) or s.temperature == 0
    if reach.of_sampling and not own and (top > reach.best or entropy):
        raise EngineError(
            f"{who} reports alternatives under the distribution sampled from, not under the policy; sample at "
            "temperature 1 without truncation, or let it report raw log-probs"
        )
    if entropy:
        return reach.vocab
    if reach.of_sampling and not own:
        return 0  # those that are wanted are the policy's, which it reports apart
    if own:
        return top
    if 0 < s.top_k <= reach.alternatives:
        return max(top, s.top_k)
    if reach.whole:
        return reach.vocab
    most = f"top_k from 1 to {reach.alternatives}, or " if reach.alternatives else ""
    raise EngineError(
        f"{who} reports log-probs of the policy, not of the distribution at temperature {s.temperature:g}, "
        f"top_p {s.top_p:g}, top_k {s.top_k}; set {most}temperature 1 without truncation, or use the local engine"
    )


def distribution_of(logp: Rows, best: Rows, s: Sampling) -> Rows:
    """Log-probs of drawn tokens under the distribution, from their log-probs and the best alternatives of each step.

    `logp` has one entry per token, `best` one row per token, most likely first, holding all that top-k keeps. Ties with
    the k-th are all kept.
    """
    scaled, drawn = best / s.temperature, logp / s.temperature
    if 0 < s.top_k < best.shape[1]:
        scaled = np.where(scaled >= scaled[:, s.top_k - 1 : s.top_k], scaled, -np.inf)
    scaled, drawn = _normalised(scaled, drawn)
    if s.top_p < 1:
        mass = np.exp(scaled)
        before = np.cumsum(mass, 1) - mass
        before[:, 0] = 0
        scaled, drawn = _normalised(np.where(before < s.top_p, scaled, -np.inf), drawn)
    return drawn


def entropy_of(rows: Rows) -> Rows:
    """−Σ p ln p of whole distributions."""
    p = np.exp(rows)
    return -(p * np.where(p > 0, rows, 0.0)).sum(1)


def _normalised(rows: Rows, drawn: Rows) -> tuple[Rows, Rows]:
    total = np.logaddexp.reduce(rows, axis=1)
    return rows - total[:, None], drawn - total
