"""How long rollouts are: the longest, the tail, and right against wrong answers of the same prompts."""

from __future__ import annotations

import numpy as np

from rolltree.metrics.rollouts import Numbers, Rollouts


def lengths(r: Rollouts) -> Numbers:
    """Policy tokens per path, of the rollouts that ended."""
    ended = r.is_("status", "done")[r.leaf]
    if not ended.any():
        return {}
    own = r.own[ended]
    most, ninth = float(own.max()), float(np.quantile(own, 0.9))
    out = {"rollout/length_max": most, "rollout/length_tail": (most - ninth) / most if most else 0.0}
    right, wrong = r.mean(r.own, r.solved), r.mean(r.own, r.wrong)
    mixed = np.isfinite(right) & np.isfinite(wrong)
    if mixed.any():
        apart = float((wrong[mixed] - right[mixed]).mean())
        out["rollout/length_bias"] = apart / max(float(own.mean()), 1.0)
    return out
