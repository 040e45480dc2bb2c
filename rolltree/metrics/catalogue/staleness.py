"""Metrics of staleness: versions of the weights between writing a token and training on it."""

from __future__ import annotations

from rolltree.metrics.metric import Metric

TOKENS, REPLAYED = "metrics.policy:staleness", "metrics.policy:replayed"
PARTIAL = "rollout.underway:Underway.numbers"
METRICS = (
    Metric("staleness/mean", "versions", "Versions behind the weights in training, mean over the trained tokens.",
           TOKENS, "lower"),
    Metric("staleness/max", "versions", "Versions behind of the oldest trained token.", TOKENS, "lower"),
    Metric("staleness/replayed", "share", "Share of the policy's tokens that stand in grafted branches.", REPLAYED,
           sparse=True),
    Metric("staleness/replayed_mean", "versions", "Versions behind, mean over the tokens of grafted branches.",
           REPLAYED, "lower"),
    Metric("staleness/partial_mean", "versions", "Versions since unfinished rollouts were begun, mean over rollouts.",
           PARTIAL, "lower", sparse=True),
    Metric("staleness/partial_max", "versions", "Versions since the oldest unfinished rollout was begun.", PARTIAL,
           "lower", sparse=True),
)  # fmt: skip
