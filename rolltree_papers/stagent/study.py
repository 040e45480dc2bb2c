"""Mean times variance on simulated prompts, held against uniform choice."""

from __future__ import annotations

from collections.abc import Sequence

from rolltree.control.pool import Shuffled
from rolltree_papers.stagent import Stagent
from studies.lab.claim import Measured
from studies.prompts.checks import chosen, favoured, varied
from studies.prompts.world import Log


def yielded(logs: Sequence[Log]) -> float:
    """Groups with variance per 1,000 rollouts drawn, measuring ones included."""
    return 1000 * sum(log.effective for log in logs) / sum(log.rollouts for log in logs)


def stagent(seed: int) -> Measured:
    """Groups with variance per 1,000 rollouts, those that measure counted: mean × variance against uniform choice from
    the same pool of 400."""
    ours, even = chosen(Stagent(400, rollouts=8), seed), chosen(Shuffled(400), seed)
    shares = ([0.0, 1.0], [varied(ours), varied(even)])
    return Measured(yielded(ours), yielded(even), {"share of groups with variance, by arm": shares},
                    favoured(ours, even))  # fmt: skip
