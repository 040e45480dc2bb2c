"""Outcomes of rollouts and their reward: as the verifier said them, and as credit saw them."""

from __future__ import annotations

import numpy as np

from rolltree.metrics.rollouts import SAME, Numbers, Rollouts

NOT_PARTS = frozenset(
    {"reward", "outcome", "solved", "true_reward", "vote", "overlong", "step_reward", "advantage", "value", "prior"}
)
"""Scores of a leaf that are no components of its outcome."""


def outcomes(r: Rollouts) -> Numbers:
    """What the verifier said, how long rollouts are, how many were cut off or failed."""
    if not len(r.leaf):
        return {}
    out = {
        "rollout/truncated": float(r.is_("finish", "length")[r.leaf].mean()),
        "rollout/failed": float(r.is_("status", "failed")[r.leaf].sum()),
    }
    if not r.judged.any():
        return out
    judged = r.count(r.judged) > 0
    return out | {
        "reward/mean": float(r.outcome[r.judged].mean()),
        "reward/solved": float(r.solved[r.judged].mean()),
        "reward/zero_variance": float((r.spread(r.outcome, r.judged)[judged] <= SAME).mean()),
        "rollout/length": float(r.own[r.judged].mean()),
    }


def parts(r: Rollouts) -> Numbers:
    """Mean of what credit saw, and of each part of a reward that has several."""
    if not r.judged.any():
        return {}
    out = {
        "reward/shaped": float(r.reward[r.judged].mean()),
        "reward/reshaped": float(np.abs(r.reward - r.outcome)[r.judged].mean()),
    }
    for name in sorted(r.source.score_names() - NOT_PARTS):
        values = r.score(name)[r.leaf][r.judged]
        if np.isfinite(values).any():
            out[f"reward/part/{name}"] = float(np.nanmean(values))
    return out
