"""Metrics of outcomes: rewards, groups of one prompt, and the verifier."""

from __future__ import annotations

from rolltree.metrics.metric import Metric

GROUPS, VERIFIER = "metrics.reward:groups", "metrics.reward:verdicts"
METRICS = (
    Metric("reward/mean", "number", "Mean outcome of the rollouts that were scored, as the verifier said it.",
           "metrics.reward:outcomes", "higher"),
    Metric("reward/solved", "share",
           "Share of the scored rollouts that are right: as the verifier says, else by an outcome of 1.",
           "metrics.reward:outcomes", "higher"),
    Metric("reward/shaped", "number", "Mean of what credit saw: the outcome after shaping or voting.",
           "metrics.reward:parts"),
    Metric("reward/reshaped", "number",
           "Mean of |what credit saw − the outcome|: how much shaping, voting or judging changed.",
           "metrics.reward:parts", sparse=True),
    Metric("reward/part/<part>", "number", "Mean of one part of a reward that has several.", "metrics.reward:parts"),
    Metric("reward/zero_variance", "share", "Share of the sampled groups whose outcomes are all the same.",
           "metrics.reward:outcomes", "lower"),
    Metric("reward/zero_variance_trained", "share", "Share of the groups trained on whose rewards are all the same.",
           GROUPS, "lower"),
    Metric("reward/all_solved", "share", "Share of the groups in which every rollout is right.", GROUPS),
    Metric("reward/all_wrong", "share", "Share of the groups in which no rollout is right and all outcomes are equal.",
           GROUPS, "lower"),
    Metric("reward/all_solved_tokens", "share", "Share of the policy's tokens that went to groups that are all right.",
           GROUPS, "lower"),
    Metric("reward/all_wrong_tokens", "share", "Share of the policy's tokens that went to groups that are all wrong.",
           GROUPS, "lower"),
    Metric("reward/split_transcripts", "share",
           "Of transcripts that stand twice in a group, the share that got two outcomes.", VERIFIER, "lower"),
    Metric("reward/split_answers", "share",
           "Of final answers that stand twice in a group, the share that is right once and wrong once.", VERIFIER,
           "lower"),
    Metric("reward/judge", "number", "Grade that a judge gave, mean over the rollouts it graded.",
           "metrics.reward:judge"),
    Metric("reward/judge_auc", "share",
           "Chance that the judge grades a right rollout above a wrong one: one half tells nothing.",
           "metrics.reward:judge", "higher"),
    Metric("reward/vote_share", "share", "Share of the votes that the majority has, where votes give the reward.",
           "metrics.reward:vote"),
    Metric("reward/vote_wrong", "share", "Share of the prompts whose majority answer the verifier calls wrong.",
           "metrics.reward:vote", "lower"),
    Metric("reward/regressed", "share", "Of first attempts that were right, the share whose second attempt is not.",
           "metrics.reward:waves", "lower", sparse=True),
    Metric("reward/mended", "share", "Of first attempts that were wrong, the share whose second attempt is right.",
           "metrics.reward:waves", "higher", sparse=True),
)  # fmt: skip
