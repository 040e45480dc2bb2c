"""Calls of tools and environments: how many, and how many fail."""

from __future__ import annotations

import numpy as np

from rolltree.metrics.rollouts import Numbers, Rollouts
from rolltree.tree.shape import Bools


def tools(r: Rollouts) -> Numbers:
    """Answers of the environment per rollout, and the share of calls that failed."""
    env = r.is_("role", "env")
    if not env.any() or not len(r.leaf):
        return {}
    calls = r.down(env.astype(np.int64))[r.leaf]
    return {"rollout/tool_calls": float(calls.mean()), "rollout/tool_failures": float(failed_calls(r)[env].mean())}


def failed_calls(r: Rollouts) -> Bools:
    """Environment nodes that answered a call with a failure (`notes["failed"]`)."""
    out = np.zeros(len(r.parent), np.bool_)
    env = np.flatnonzero(r.is_("role", "env"))
    out[env] = [bool(notes.get("failed")) for notes in r.source.notes(env)]
    return out
