"""A line in metrics.jsonl for every step that lost rollouts, with the first exception in words."""

from __future__ import annotations

from dataclasses import dataclass

from rolltree.metrics.log import MetricsLog
from rolltree.train.failures import KIND, failures
from rolltree.train.loop import RunEvent


@dataclass(frozen=True, slots=True)
class FailureLog:
    """Listens to a run."""

    metrics: MetricsLog

    def __call__(self, live: RunEvent) -> None:
        """Look at what has just been grown."""
        if live.kind in ("grown", "evaluated"):
            failed, leaves, why = failures(live.trees)
            if failed:
                self.metrics.write_words(KIND, live.step, failed=failed, leaves=leaves, why=why)
