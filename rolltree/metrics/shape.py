"""What rollouts look like: how much they share, where they fork, how long they are, what they repeat, which tools
they call.
"""

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


def copies(r: Rollouts) -> Numbers:
    """Copies among the wrong rollouts of groups of two or more, and different answers per judged rollout."""
    out: Numbers = {}
    missed = r.wrong & (r.count(r.judged) >= 2)[r.leaf_tree]
    if missed.any() and len(r.transcript):
        out["rollout/duplicates"] = float(repeats(r)[missed].mean())
    if r.judged.any():
        # Leaves without an answer count as one more kind of answer.
        kinds = np.unique(np.stack([r.leaf_tree[r.judged], r.answer[r.judged]]), axis=1)
        judged = r.count(r.judged)
        given = np.bincount(kinds[0], minlength=r.trees)[judged > 0]
        out["rollout/unique"] = float((given / judged[judged > 0]).mean())
    return out


def repeats(r: Rollouts) -> Bools:
    """Leaves whose whole path an earlier leaf of the tree has written already."""
    key = np.stack([r.leaf_tree.astype(np.uint64), r.transcript])
    first = np.zeros(len(r.leaf), np.bool_)
    first[np.unique(key, axis=1, return_index=True)[1]] = True
    return ~first


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


def tools(r: Rollouts) -> Numbers:
    """Answers of the environment per rollout, and the share of calls that failed."""
    env = r.is_("role", "env")
    if not env.any() or not len(r.leaf):
        return {}
    calls = r.down(env.astype(np.int64))[r.leaf]
    return {"rollout/tool_calls": float(calls.mean()), "rollout/tool_failures": float(failed_calls(r)[env].mean())}


def masked(r: Rollouts) -> Numbers:
    """Tokens of the policy on the paths of judged rollouts that are left out of the loss, per such token."""
    if not r.judged.any():
        return {}
    keep, at = r.ragged("keep")
    assert len(at) == len(r.parent) + 1
    left = r.per_node("keep", ~keep.astype(np.bool_)) * r.trainable if len(keep) else np.zeros(len(r.parent))
    out = r.down(np.rint(left).astype(np.int64))[r.leaf][r.judged].sum()
    return {"rollout/masked": float(out / max(r.own[r.judged].sum(), 1))}


def failed_calls(r: Rollouts) -> Bools:
    """Environment nodes that answered a call with a failure (`notes["failed"]`)."""
    out = np.zeros(len(r.parent), np.bool_)
    env = np.flatnonzero(r.is_("role", "env"))
    out[env] = [bool(notes.get("failed")) for notes in r.source.notes(env)]
    return out
