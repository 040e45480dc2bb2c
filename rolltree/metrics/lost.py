"""Tokens of pruned or failed branches: what they share with a branch that lives on is not lost."""

from __future__ import annotations

import numpy as np

from rolltree.metrics.rollouts import Numbers, Rollouts


def lost_tokens(r: Rollouts) -> Numbers:
    """Policy tokens below which every leaf was pruned or failed, by which of the two.

    A branch of both kinds counts as pruned.
    """
    pruned, failed = (r.is_("status", word)[r.leaf] for word in ("pruned", "failed"))
    own = r.trainable & ~r.source.numbers("forced").astype(np.bool_) & (r.below(~(pruned | failed)) == 0)
    cut = own & (r.below(pruned) > 0)
    broke = own & ~cut & (r.below(failed) > 0)
    found = {"budget/tokens_pruned": r.length[cut].sum(), "budget/tokens_failed": r.length[broke].sum()}
    return {name: float(tokens) for name, tokens in found.items()}
