"""Groups, the rollouts of one prompt: those without variance, those all right or all wrong, and what these cost."""

from __future__ import annotations

import numpy as np

from rolltree.metrics.rollouts import SAME, Numbers, Rollouts
from rolltree.tree.shape import Bools


def groups(r: Rollouts) -> Numbers:
    """Shares of the groups of two rollouts or more, and of the tokens they cost."""
    many = r.count(r.judged) >= 2
    if not many.any():
        return {}
    solved, wrong = all_solved(r), all_wrong(r)
    tokens = np.bincount(r.tree, r.length * r.trainable, len(many))
    out = {
        "reward/all_solved": float(solved[many].mean()),
        "reward/all_wrong": float(wrong[many].mean()),
        "reward/all_solved_tokens": float(tokens[solved].sum() / max(tokens.sum(), 1)),
        "reward/all_wrong_tokens": float(tokens[wrong].sum() / max(tokens.sum(), 1)),
    }
    trained = r.count(r.trained) >= 2
    if trained.any():
        out["reward/zero_variance_trained"] = float(zero_variance(r)[trained].mean())
    return out


def zero_variance(r: Rollouts) -> Bools:
    """Trees of which two leaves or more were trained on, all with the same reward."""
    return (r.count(r.trained) >= 2) & (r.spread(r.reward, r.trained) <= SAME)


def all_solved(r: Rollouts) -> Bools:
    """Trees all of whose two leaves or more are right."""
    return (r.count(r.judged) >= 2) & (r.count(r.solved) == r.count(r.judged))


def all_wrong(r: Rollouts) -> Bools:
    """Trees of two leaves or more without a right one, all with the same outcome."""
    alike = r.spread(r.outcome, r.judged) <= SAME
    return (r.count(r.judged) >= 2) & (r.count(r.solved) == 0) & alike
