"""Metrics of evaluations on held-out items."""

from __future__ import annotations

from rolltree.metrics.metric import Metric

SUMMARY = "training.evaluate:summary"
METRICS = (
    Metric("eval/pass@<k>", "share",
           "Chance that at least one of k samples of a held-out item is right (unbiased estimate); with `_low` and "
           "`_high` the ends of its 95 % interval.", SUMMARY, "higher"),
    Metric("eval/reward", "number", "Mean outcome on held-out items.", SUMMARY, "higher"),
    Metric("eval/part/<part>", "number", "Mean of one part of the reward on held-out items.", SUMMARY),
    Metric("eval/items", "count", "Held-out items with a scored sample.", SUMMARY),
    Metric("eval/length", "tokens", "Policy tokens of a sample.", SUMMARY),
    Metric("eval/failed", "rollouts", "Samples that failed; they count in no rate.", SUMMARY, "lower"),
    Metric("eval/decoded", "tokens", "Tokens decoded by the evaluation; no budget pays for them.",
           "training.evaluate:evaluate"),
)  # fmt: skip
