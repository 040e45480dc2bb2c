"""Names that metrics had in Rolltree 0.1: the one place that knows them, for runs and evidence that were stored then.

Applied when lines are read (`rolltree.metrics.log`, `rolltree.compare.trace`, `studies.lab.entry`, findings of the
doctor); nothing writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TRAIN: Mapping[str, str] = {
    "reward": "reward/mean", "solved": "reward/solved", "flat_groups": "reward/zero_variance",
    "part.taught": "reward/shaped", "groups.flat": "reward/zero_variance_trained", "groups.solved": "reward/all_solved",
    "groups.hopeless": "reward/all_wrong", "groups.solved_tokens": "reward/all_solved_tokens",
    "groups.hopeless_tokens": "reward/all_wrong_tokens", "verdicts.split": "reward/split_transcripts",
    "verdicts.answer_split": "reward/split_answers", "vote.share": "reward/vote_share",
    "vote.wrong": "reward/vote_wrong",
    "length": "rollout/length", "lengths.most": "rollout/length_max", "lengths.tail": "rollout/length_tail",
    "lengths.bias": "rollout/length_bias", "truncated": "rollout/truncated", "failed": "rollout/failed",
    "failed.share": "rollout/failed_share", "failed.retries": "rollout/retries",
    "starved.leaves": "rollout/unfinished", "starved.prompts": "rollout/starved_prompts",
    "tree.leaves": "rollout/group_size", "tree.depth": "rollout/depth",
    "tree.without_logq": "rollout/without_sampling_logprob", "branches.effective": "rollout/effective_branches",
    "groups.duplicated": "rollout/duplicates", "tools.calls": "rollout/tool_calls",
    "tools.failed": "rollout/tool_failures", "rounds": "rollout/rounds", "leaves.submitted": "rollout/submitted",
    "leaves.trained": "rollout/trained", "leaves.kept": "rollout/kept", "leaves.running": "rollout/running",
    "leaves.dropped: nothing to teach": "rollout/dropped/no credit",
    "leaves.dropped": "rollout/dropped", "leaves.waiting": "rollout/waiting", "recalled": "rollout/recalled_groups",
    "schedule.partials": "rollout/partial", "schedule.partial_tokens": "rollout/partial_tokens",
    "partial.waiting": "rollout/partial", "partial.waiting_tokens": "rollout/partial_tokens",
    "partial.finished": "rollout/partial_finished", "schedule.resumed": "rollout/resumed",
    "schedule.ready": "rollout/ready_groups", "schedule.under_way": "rollout/under_way",
    "schedule.slow_trained": "rollout/slow_trained", "schedule.other_trained": "rollout/other_trained",
    "policy_entropy": "policy/entropy", "gap_mean": "policy/mismatch", "gap_max": "policy/mismatch_max",
    "gap_over": "policy/mismatch_over", "weight.ess": "policy/ess",
    "idle_share": "policy/zero_advantage", "prefix.tokens": "policy/prefix_tokens",
    "prefix.pull": "policy/prefix_pull", "entropy": "policy/entropy_bonus", "ess": "policy/update_ess",
    "loss": "optim/loss", "grad_norm": "optim/grad_norm", "lr": "optim/lr", "updates": "optim/updates",
    "micro_batches": "optim/micro_batches", "step_factor": "optim/step_factor", "critic_loss": "optim/critic_loss",
    "critic_explained": "optim/critic_explained",
    "decoded": "budget/decoded_total", "spent.decoded": "budget/decoded", "spent.prefilled": "budget/prefilled",
    "spent.leaves": "budget/leaves", "spent.env_steps": "budget/env_steps", "spent.judge_calls": "budget/judge_calls",
    "trained_tokens": "budget/trained", "packed_tokens": "budget/packed", "tokens.pruned": "budget/tokens_pruned",
    "tokens.failed": "budget/tokens_failed", "control.prompts": "budget/groups",
    "control.flat_first": "budget/zero_variance_first", "control.flat_avoided": "budget/zero_variance_avoided",
    "control.tokens_in_flat": "budget/zero_variance_tokens", "control.probed": "budget/probed",
    "control.pruned": "budget/probe_pruned", "control.tokens_pruned": "budget/probe_pruned_tokens",
    "control.keep": "budget/probe_keep", "control.head_auc": "budget/probe_auc",
    "control.head_accuracy": "budget/probe_accuracy", "control.head_brier": "budget/probe_brier",
    "control.posterior_low": "budget/probe_posterior_low", "control.posterior_middle": "budget/probe_posterior_median",
    "control.posterior_high": "budget/probe_posterior_high",
    "age.mean": "staleness/mean", "age.max": "staleness/max",
    "lag.replayed": "staleness/replayed", "lag.replay_age": "staleness/replayed_mean",
    "partial.age_mean": "staleness/partial_mean", "partial.age_max": "staleness/partial_max",
    "schedule.partial_age_mean": "staleness/partial_mean", "schedule.partial_age_max": "staleness/partial_max",
    "seconds.idle_share": "time/idle_load", "seconds.engine_idle_share": "time/engine_idle",
    "seconds.trainer_idle_share": "time/trainer_idle",
}  # fmt: skip
"""Names in lines of training steps."""
OPEN: Mapping[str, str] = {
    "leaves.dropped: ": "rollout/dropped/", "tree.births.": "rollout/births/", "tree.pruned: ": "rollout/pruned/",
    "schedule.rollouts.": "rollout/scheduled/", "schedule.tokens.": "budget/scheduled_tokens/",
    "part.": "reward/part/", "failed.": "rollout/failed/", "control.tokens.": "budget/tokens/",
    "control.rollouts.": "budget/rollouts/", "control.prompts.": "budget/prompts/", "control.level.": "budget/level/",
    "control.arm.": "budget/arm/", "control.": "budget/control/", "seconds.": "time/",
}  # fmt: skip
"""The fixed beginnings of names with an open end."""
POLICY = ("clip_", "ratio_", "bound_", "kl_", "cov_", "entropy_", "is_weight_", "rejected", "second_moment",
          "prefix_factor", "gate_", "gpg_", "hint_share", "data_probability", "pair_", "sequence_weight_",
          "baseline")  # fmt: skip
"""Beginnings of what objectives said of themselves."""
DROPPED = frozenset({
    "tree.answers", "tree.duplicated", "tree.sharing_ratio", "tree.effective_branches", "tree.births.root",
    "lengths.median", "lengths.right", "lengths.wrong", "cut.wrong", "verdicts.repeated", "verdicts.answer_repeated",
    "lag.mean", "lag.most", "lag.stale", "schedule.lag_mean", "schedule.lag_max", "control.flat", "control.width_least",
    "control.width_mean", "control.width_most", "control.assisted", "weight.most", "age.stale",
})  # fmt: skip
"""Numbers that 0.1 wrote beside others that say the same, or that nothing read."""
COMPARED: Mapping[str, str] = {
    "reward": "reward/mean", "solved": "reward/solved", "zero_variance": "reward/zero_variance",
    "truncated": "rollout/truncated", "failed": "rollout/failed", "length": "rollout/length",
    "entropy": "policy/entropy", "unique": "rollout/unique", "sharing": "rollout/sharing",
    "decoded_per_leaf": "budget/decoded_per_leaf", "env_steps_per_leaf": "budget/env_steps_per_leaf",
}  # fmt: skip
"""Names in traces of comparisons and in evidence."""
DETECTORS: Mapping[str, str] = {"hopeless_prompts": "all_wrong_prompts", "engine_gap": "mismatch"}


def train_name(name: str) -> str:
    """The present name of a number of a training step; the name itself where it is not an old one."""
    if "/" in name or name in ("kind", "step") or name in DROPPED:
        return name
    if name in TRAIN:
        return TRAIN[name]
    for begin, new in OPEN.items():
        if name.startswith(begin):
            return new + name.removeprefix(begin)
    if name.startswith(POLICY):
        return f"policy/{name}"
    actor, dot, rest = name.partition(".")
    found = train_name(rest) if dot else name
    return f"{actor}/{found}" if "/" in found else name


def eval_name(name: str) -> str:
    """The present name of a number of an evaluation; of another policy in the run it stands under its actor."""
    if "/" in name or name in ("kind", "step"):
        return name
    if name == "seconds.evaluate":
        return "time/evaluate"
    actor, dot, rest = name.partition(".")
    return f"{actor}/eval/{rest}" if dot else f"eval/{name}"


def compared_name(name: str) -> str:
    """The present name of a metric of a comparison, with what it is judged by: `pass@1 area` is `eval/pass@1 area`."""
    if name.startswith("pass@"):
        return f"eval/{name}"
    return COMPARED.get(name, name)


def renamed(line: Any) -> Any:
    """A line of metrics.jsonl under present names; of two numbers that are one now the first is kept.

    What is no object is given back as it is: whoever reads the line says what is wrong with it.
    """
    if not isinstance(line, dict):
        return line
    names = {"train": train_name, "eval": eval_name}
    name = names.get(str(line.get("kind")), str)
    out: dict[str, Any] = {}
    for old, value in line.items():
        out.setdefault(name(old), value)
    return out


def finding(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of findings.jsonl under present names."""
    out = dict(line)
    if "lever" in out:
        out["fix"] = out.pop("lever")
    if "name" in out:
        out["name"] = DETECTORS.get(out["name"], out["name"])
    out["numbers"] = {train_name(k): v for k, v in out.get("numbers", {}).items()}
    return out
