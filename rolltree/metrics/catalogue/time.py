"""Metrics of time: where the seconds of a step went, and who stood idle."""

from __future__ import annotations

from rolltree.metrics.metric import Metric

LAP = "training.loop:Loop.step"
METRICS = (
    Metric("time/grow", "seconds", "Seconds in which rollouts were grown, or waited for.", LAP),
    Metric("time/credit", "seconds", "Seconds of credit, folding and packing.", LAP),
    Metric("time/learn", "seconds", "Seconds of forward, backward and optimizer.", LAP),
    Metric("time/stop", "seconds", "Seconds until rollouts had stopped for the update.", LAP),
    Metric("time/publish", "seconds", "Seconds until the engine had the new weights.", LAP),
    Metric("time/total", "seconds", "Seconds of all steps since the run began.", LAP),
    Metric("time/processor", "seconds",
           "Processor seconds of the step or evaluation, over all threads of the driver.", LAP),
    Metric("time/evaluate", "seconds", "Seconds of an evaluation.", "training.loop:Loop.evaluate"),
    Metric("time/idle_load", "share",
           "1 − mean over most requests in flight while rollouts grew: the share of the engine's peak load that was "
           "idle.", "metrics.usage:timing", "lower"),
    Metric("time/engine_idle", "share", "Under a schedule, the share of the step in which the engine had no request.",
           "rollout.collector:Collector", "lower"),
    Metric("time/trainer_idle", "share", "Under a schedule, the share of the step in which the trainer did not learn.",
           "rollout.collector:Collector", "lower"),
)  # fmt: skip
