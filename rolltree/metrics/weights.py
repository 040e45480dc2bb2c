"""Importance weights of whole rollouts, and where the pull of the update falls in a tree."""

from __future__ import annotations

import numpy as np

from rolltree.metrics.rollouts import Numbers, Rollouts
from rolltree.tree.shape import Floats


def ess(log_weights: Floats) -> float:
    """Effective share of a sample under importance weights: (Σw)² / (n Σw²); Kish 1965."""
    w = np.exp(log_weights - log_weights.max())
    return float(w.sum() ** 2 / (len(w) * np.square(w).sum()))


def weights(r: Rollouts) -> Numbers:
    """Importance weights of whole rollouts, policy over sampling distribution.

    From forests the policy is the one recorded in `logp`; training measures it with the trainer's own log-probs.
    """
    found = log_weights(r)
    known = np.isfinite(found) & r.judged
    return {"policy/ess": ess(found[known])} if known.any() else {}


def log_weights(r: Rollouts) -> Floats:
    """Σ(logp − sampling_logprob) along each leaf's path over what was sampled; NaN where nothing was recorded."""
    sampling_logprob, at = r.ragged("sampling_logprob")
    logp, other = r.ragged("logp")
    if not len(sampling_logprob) or not np.array_equal(at, other):
        return np.full(len(r.leaf), np.nan)
    known = np.isfinite(sampling_logprob) & np.isfinite(logp) & np.repeat(r.trainable, np.diff(at))
    apart = np.where(known, logp.astype(np.float64) - np.where(known, sampling_logprob, 0), 0.0)
    seen = r.down(r.per_node("sampling_logprob", known.astype(np.float64)))[r.leaf]
    return np.where(seen > 0, r.down(r.per_node("sampling_logprob", apart))[r.leaf], np.nan)


def prefix(r: Rollouts) -> Numbers:
    """Tokens that several trained leaves share: their share of the trained tokens and of the pull |gain + loss|."""
    gain, at = r.ragged("gain")
    loss, other = r.ragged("loss")
    if not len(gain) or not np.array_equal(at, other):
        return {}
    pull = np.abs(gain.astype(np.float64) + loss)
    shared = np.repeat(r.below(r.trained) > 1, np.diff(at))
    trained = np.repeat(r.trainable & (r.below(r.trained) > 0), np.diff(at))
    total = float(pull[trained].sum())
    if total == 0.0 or not shared[trained].any():
        return {}
    return {
        "policy/prefix_tokens": float(shared[trained].mean()),
        "policy/prefix_pull": float(pull[trained & shared].sum() / total),
    }


def entropy(r: Rollouts) -> Numbers:
    """The policy's entropy, as the engine reported it; training measures it in its own forward pass."""
    found, at = r.ragged("entropy")
    own = np.repeat(r.trainable, np.diff(at)) & np.isfinite(found)
    return {"policy/entropy": float(found[own].mean())} if own.any() else {}
