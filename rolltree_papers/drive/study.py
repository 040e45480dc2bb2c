"""Broad, then hard prompts, on simulated prompts, held against the broad stage alone."""

from __future__ import annotations

from rolltree.control.pool import Shuffled
from rolltree_papers.drive import Drive
from studies.lab.claim import Measured
from studies.prompts.checks import hardest_quarter, mostly_hard, until
from studies.prompts.world import grouped, mixed


def drive(seed: int) -> Measured:
    """All prompts after 40,000 rollouts: broad, then hard, against the broad stage alone; the curve has what was bought
    with it, the hardest quarter."""
    ours, plain = mostly_hard(seed), mostly_hard(seed)
    logs = until(Drive(200, (72, 50, 25), broad=60, each=8, hard=64), ours, 40_000)
    until(Shuffled(200), plain, 40_000)
    # Only the sets of hard prompts are asked with a width of their own; measuring rollouts are not in a group.
    groups = [g for log in logs for g in grouped(log.delivered).values() if g[0].order.width is not None]
    taught = {"groups of hard sets with variance": float(sum(mixed(g) for g in groups))}
    hard = ([0.0, 1.0], [hardest_quarter(ours), hardest_quarter(plain)])
    return Measured(float(ours.rates.mean()), float(plain.rates.mean()), {"hardest quarter, by arm": hard}, taught)
