"""Rollouts that were lost or not finished, and what broke."""

from __future__ import annotations

from rolltree.metrics.rollouts import Numbers, Rollouts
from rolltree.tree.shape import Bools

BREAKERS = {"verifier": "verifier", "environment": "environment", "engine": "engine", "judge": "judging"}
"""What can break, with the word that its events begin with."""


def failures(r: Rollouts) -> Numbers:
    """Failed leaves as a share of all, and by what broke; calls that were tried again, per leaf."""
    if not len(r.leaf):
        return {}
    events = r.source.events()
    why = [w for kind, w in zip(events.kind, events.why, strict=True) if kind == "fail"]
    said = {name: sum(part in w.partition(":")[0] for w in why) for name, part in BREAKERS.items()}
    out = {"rollout/failed_share": float(r.is_("status", "failed")[r.leaf].mean())}
    out |= {f"rollout/failed/{name}": count / len(r.leaf) for name, count in said.items()}
    return out | {"rollout/retries": sum(kind == "retry" for kind in events.kind) / len(r.leaf)}


def unfinished_rollouts(r: Rollouts) -> Numbers:
    """Rollouts that were still running, aborted or out of budget, and prompts none of whose rollouts ended."""
    if not len(r.leaf):
        return {}
    grown = r.count(r.all) > 0
    return {
        "rollout/starved_prompts": float(starved(r)[grown].mean()),
        "rollout/unfinished": float(unfinished(r).mean()),
    }


def unfinished(r: Rollouts) -> Bools:
    """Leaves that something other than the policy or its length limit stopped."""
    return (r.is_("finish", "budget", "abort") | r.is_("status", "open", "paused"))[r.leaf]


def starved(r: Rollouts) -> Bools:
    """Trees all of whose leaves are unfinished."""
    return (r.count(~unfinished(r)) == 0) & (r.count(unfinished(r)) > 0)
