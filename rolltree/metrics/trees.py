"""The shape of trees: how much their rollouts share, where they fork, and what was pruned."""

from __future__ import annotations

from collections import Counter

import numpy as np

from rolltree.metrics.rollouts import Numbers, Rollouts
from rolltree.tree.shape import Bools, Floats

LEAST_LEAVES = 4
"""Trees with fewer leaves say nothing about branches."""


def trees(r: Rollouts) -> Numbers:
    """Leaves per prompt, nodes on a path, forks by what made them, and nodes pruned by why."""
    if not len(r.leaf):
        return {}
    out = {
        "rollout/group_size": float(len(r.leaf) / (r.count(r.all) > 0).sum()),
        "rollout/group_size_spread": float(r.count(r.all)[r.count(r.all) > 0].std()),
        "rollout/depth": float(r.shape.depth[r.leaf].mean()),
    }
    lacking = r.mean(without_sampling_logprob(r), r.all)
    out["rollout/without_sampling_logprob"] = float(lacking[np.isfinite(lacking)].mean())
    siblings = (r.parent >= 0) & (r.shape.child_count[r.parent] > 1)
    births = r.words_of("birth", siblings)
    out |= {f"rollout/births/{birth}": float(count) for birth, count in sorted(births.items()) if birth != "root"}
    events = r.source.events()
    pruned: Counter[str] = Counter()
    for i in (i for i, kind in enumerate(events.kind) if kind == "prune"):
        pruned[events.why[i]] += int(events.numbers_of(i).get("nodes", 1))
    return out | {f"rollout/pruned/{why}": float(count) for why, count in sorted(pruned.items())}


def without_sampling_logprob(r: Rollouts) -> Bools:
    """Leaves on whose path some sampled token of the policy has no log-prob under the sampling distribution."""
    sampling_logprob, at = r.ragged("sampling_logprob")
    known = (
        r.per_node("sampling_logprob", np.isfinite(sampling_logprob))
        if len(sampling_logprob)
        else np.zeros(len(r.parent))
    )
    sampled = r.trainable & ~r.source.numbers("forced").astype(np.bool_) & (r.length > 0)
    assert len(at) == len(r.parent) + 1
    return r.down((sampled & (known < r.length)).astype(np.int64))[r.leaf] > 0


def sharing(r: Rollouts) -> Numbers:
    """Policy tokens on all paths per policy token in the trees, each prefix once: 1 where nothing is shared."""
    own = np.where(r.is_("role", "policy"), r.length, 0)
    return {"rollout/sharing": float((own * r.below(r.all)).sum() / own.sum())} if own.any() else {}


def branches(r: Rollouts) -> Numbers:
    """Effective branches at the first fork, over trees with leaves enough to have some."""
    found = effective_branches(r)
    known = np.isfinite(found)
    return {"rollout/effective_branches": float(found[known].mean())} if known.any() else {}


def effective_branches(r: Rollouts) -> Floats:
    """Per tree, exp of the entropy of leaf counts over the children of its first fork; NaN for trees of few leaves."""
    below = r.below(r.all)
    forks = np.flatnonzero(r.shape.child_count > 1)
    # Depth first, the first fork of a tree is its first row with two children.
    first = forks[np.unique(r.tree[forks], return_index=True)[1]]
    above = np.full(len(r.parent), -1, np.int64)
    above[first] = r.tree[first]
    child = np.flatnonzero((r.parent >= 0) & (np.append(above, -1)[r.parent] >= 0))
    tree = r.tree[child]
    leaves = r.count(r.all)
    share = below[child] / np.maximum(leaves[tree], 1)
    entropy = -np.bincount(tree, share * np.log(np.maximum(share, 1e-300)), len(leaves))
    return np.where(leaves >= LEAST_LEAVES, np.exp(entropy), np.nan)
