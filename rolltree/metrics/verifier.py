"""Does the verifier say the same twice, and is the majority right where it stands in for the verifier?"""

from __future__ import annotations

import numpy as np

from rolltree.metrics.rollouts import SAME, Numbers, Rollouts
from rolltree.tree.shape import Bools, Ints


def verdicts(r: Rollouts) -> Numbers:
    """Whole transcripts, and final answers, that stand more than once in a tree: the share that got two outcomes."""
    keys = {"reward/split_answers": (r.answer, r.judged & (r.answer >= 0))}
    if len(r.transcript):
        keys["reward/split_transcripts"] = (r.transcript.view(np.int64), r.judged)
    out: Numbers = {}
    for name, (key, among) in keys.items():
        _, repeated, differ = split_leaves(r, key, among)
        if repeated:
            out[name] = differ / repeated
    return out


def split_leaves(r: Rollouts, key: Ints, among: Bools) -> tuple[Bools, int, int]:
    """Leaves whose key stands in their tree with two outcomes; how many keys stand twice, how many of them differ."""
    split = np.zeros(len(r.leaf), np.bool_)
    rows = np.flatnonzero(among)
    if not len(rows):
        return split, 0, 0
    order = rows[np.lexsort((key[rows], r.leaf_tree[rows]))]
    new = (np.diff(r.leaf_tree[order]) != 0) | (np.diff(key[order]) != 0)
    at = np.concatenate([[0], np.flatnonzero(new) + 1])
    size = np.diff(np.append(at, len(order)))
    said = r.outcome[order]
    differ = np.maximum.reduceat(said, at) - np.minimum.reduceat(said, at) > SAME
    split[order[np.repeat(differ, size)]] = True
    return split, int((size > 1).sum()), int(differ.sum())


def vote(r: Rollouts) -> Numbers:
    """Where a majority is the label: its share of the votes, and how often the verifier calls it wrong."""
    votes = r.score("vote")[r.leaf]
    voted = np.isfinite(votes) & r.judged
    known = np.isfinite(r.mean(r.outcome, voted & (r.reward > 0.5)))
    if not known.any():
        return {}
    return {
        "reward/vote_share": float(np.nanmean(r.mean(votes, voted & (r.reward > 0.5)))),
        "reward/vote_wrong": float(wrong_majorities(r)[known].mean()),
    }


def wrong_majorities(r: Rollouts) -> Bools:
    """Trees whose majority answer the verifier calls wrong."""
    voted = np.isfinite(r.score("vote")[r.leaf]) & r.judged & (r.reward > 0.5)
    return np.nan_to_num(r.mean(r.outcome, voted), nan=1.0) < 0.5
