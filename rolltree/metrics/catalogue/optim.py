"""Metrics of the optimizer's steps."""

from __future__ import annotations

from rolltree.metrics.metric import Metric

STEP = "training.step:Learner.step"
METRICS = (
    Metric("optim/loss", "number", "Loss of an update, mean over the updates of the step.", STEP),
    Metric("optim/grad_norm", "number", "Norm of the gradient before clipping, mean over updates.", STEP),
    Metric("optim/grad_variance", "number",
           "Variance of a prompt's gradient around the mean of all, summed over weights, where it is measured.",
           "training.step_metrics:GradientNoise.numbers"),
    Metric("optim/noise_scale", "prompts",
           "That variance over the squared norm of the mean: prompts that a batch needs for a mean as large as its "
           "error.", "training.step_metrics:GradientNoise.numbers"),
    Metric("optim/lr", "number", "Learning rate of the last update.", STEP),
    Metric("optim/updates", "count", "Updates made.", STEP),
    Metric("optim/micro_batches", "count", "Micro-batches of one pass over the step.", STEP),
    Metric("optim/step_factor", "number", "What the objective scales the optimizer's step with.", STEP),
    Metric("optim/critic_loss", "number", "Squared error of the critic, mean over tokens.",
           "training.readings:Critic.learn", "lower"),
    Metric("optim/critic_explained", "share", "Share of the variance of returns that the critic explains.",
           "training.readings:Critic.learn", "higher"),
    Metric("optim/prior_moved", "nats", "KL by which the step moved the policy, where success rates are remembered.",
           "training.readings:Readings.learn"),
    Metric("optim/prior_forgetting", "share", "What an outcome leaves of the success rates remembered before it.",
           "training.readings:Readings.learn"),
)  # fmt: skip
