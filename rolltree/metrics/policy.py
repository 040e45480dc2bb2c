"""The policy in training against those that wrote the rollouts: staleness, importance weights, and where the update
pulls.
"""

from __future__ import annotations

import numpy as np

from rolltree.metrics.rollouts import Numbers, Rollouts
from rolltree.tree.shape import Bools, Floats, Ints


def staleness(r: Rollouts) -> Numbers:
    """Mean and largest staleness of the tokens that were trained on.

    Trained on are the tokens with a weight in the loss; where no weights were recorded, all of the policy's own.
    """
    version, weight = r.dense("version", -1), r.dense("weight", 0)
    used = weight > 0 if len(r.ragged("weight")[0]) else np.repeat(r.trainable, r.length)
    behind = r.newest - version[used & (version >= 0)]
    if not len(behind):
        return {}
    return {"staleness/mean": float(behind.mean()), "staleness/max": float(behind.max())}


def replayed(r: Rollouts) -> Numbers:
    """Tokens of branches that were stored and grafted: their share of the policy's own, and their staleness."""
    version, at = r.ragged("version")
    own = np.repeat(r.trainable, np.diff(at)) & (version >= 0)
    old = own & np.repeat(grafted(r), np.diff(at))
    if not own.any():
        return {}
    out = {"staleness/replayed": float(old.sum() / own.sum())}
    return out | ({"staleness/replayed_mean": float((r.newest - version[old]).mean())} if old.any() else {})


def grafted(r: Rollouts) -> Bools:
    """Nodes of branches that were stored and grafted."""
    return r.down(r.is_("birth", "graft").astype(np.int64)) > 0


def partial_rollouts(r: Rollouts) -> Numbers:
    """Rollouts that wait to go on, and those finished under other weights than they were begun with.

    Their staleness is counted from their first token to the newest weights they, or any rollout beside them, were
    written under. Nothing where every rollout is of one version.
    """
    low, high = _versions(r)
    newest = np.full(r.trees, -1, np.int64)
    np.maximum.at(newest, r.leaf_tree, high)
    waits = r.is_("status", "paused")[r.leaf] & (low >= 0)
    ended = r.is_("status", "done")[r.leaf] & (low >= 0) & (low < high)
    if not (waits | ended).any():
        return {}
    behind = np.concatenate([(newest[r.leaf_tree] - low)[waits], (high - low)[ended]])
    return {
        "rollout/partial": float(waits.sum()),
        "rollout/partial_tokens": float(r.own[waits].sum()),
        "rollout/partial_finished": float(ended.sum()),
        "staleness/partial_mean": float(behind.mean()),
        "staleness/partial_max": float(behind.max()),
    }


def _versions(r: Rollouts) -> tuple[Ints, Ints]:
    """Oldest and newest weights that wrote each leaf's path; -1 where none are known."""
    version, at = r.ragged("version")
    rows = np.repeat(np.arange(len(r.parent)), np.diff(at))
    use = np.repeat(r.trainable, np.diff(at)) & (version >= 0)
    far = np.iinfo(np.int64).max
    low, high = np.full(len(r.parent), far), np.full(len(r.parent), -1, np.int64)
    np.minimum.at(low, rows[use], version[use])
    np.maximum.at(high, rows[use], version[use])
    for level in r.shape.levels[1:]:
        low[level] = np.minimum(low[level], low[r.parent[level]])
        high[level] = np.maximum(high[level], high[r.parent[level]])
    return np.where(low == far, -1, low)[r.leaf], high[r.leaf]


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
