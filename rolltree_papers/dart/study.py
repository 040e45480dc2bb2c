"""DART's widths and rescues on simulated prompts, held against one width everywhere."""

from __future__ import annotations

from rolltree.control.pool import Shuffled
from rolltree_papers.dart import RESCUE, Dart
from studies.lab.claim import Measured
from studies.prompts.checks import hardest_quarter, mostly_hard, until


def dart(seed: int) -> Measured:
    """The hardest quarter after 40,000 rollouts: DART's widths and rescues against the same width everywhere."""
    ours, plain = mostly_hard(seed), mostly_hard(seed)
    logs = until(Dart(), ours, 40_000)
    until(Shuffled(200), plain, 40_000)
    served = [d for log in logs for d in log.delivered]
    rescued = sum(d.order.arm == RESCUE for d in served)
    saved = sum(8 - d.n for d in served if d.order.arm != RESCUE)
    acted = {"rollouts saved": float(saved), "groups rescued": float(rescued)}
    return Measured(hardest_quarter(ours), hardest_quarter(plain), acted=acted)
