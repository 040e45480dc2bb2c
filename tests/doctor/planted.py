"""Logs and forests with one pathology each, and healthy ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rolltree.doctor import CheckedRun
from rolltree.metrics.rollouts import Rollouts
from rolltree.tree import Tree
from rolltree.tree.table import table

Value = float | Callable[[float], float]

HEALTHY: dict[str, Value] = {
    "reward/mean": lambda t: 0.3 + 0.3 * t,
    "reward/solved": lambda t: 0.3 + 0.3 * t,
    "rollout/length": 20.0,
    "rollout/truncated": 0.01,
    "policy/entropy": lambda t: 0.5 - 0.15 * t,
    "policy/mismatch": 1e-6,
    "policy/ess": 0.98,
    "reward/zero_variance_trained": 0.2,
    "policy/zero_advantage": 0.2,
    "reward/all_solved_tokens": 0.1,
    "reward/all_wrong_tokens": 0.15,
    "rollout/duplicates": 0.2,
    "rollout/effective_branches": 6.0,
    "policy/prefix_pull": 0.4,
    "policy/prefix_tokens": 0.35,
    "rollout/length_bias": 0.1,
    "rollout/length_tail": 0.5,
    "time/idle_load": 0.5,
    "rollout/starved_prompts": 0.0,
    "rollout/tool_failures": 0.2,
    "staleness/mean": 0.5,
    "staleness/replayed": 0.1,
    "staleness/replayed_mean": 3.0,
    "reward/vote_wrong": 0.2,
    "rollout/failed_share": 0.0,
    "rollout/failed/verifier": 0.0,
    "rollout/retries": 0.0,
    "reward/split_transcripts": 0.0,
    "reward/split_answers": 0.05,
    "reward/shaped": lambda t: 0.3 + 0.3 * t,
    "reward/part/format": lambda t: 0.6 + 0.3 * t,
}

COUNTER = {"recipe": "planted", "metric": "policy/prefix_tokens", "rest": 0.0, "least": 1e-4}
"""What the card of the recipe that was trained counts."""
PLANTED: dict[str, dict[str, Value]] = {
    "never_acted": {"policy/prefix_tokens": 0.0},
    "zero_variance": {"reward/zero_variance_trained": 0.9},
    "weak_credit": {"policy/zero_advantage": 0.9},
    "solved_prompts": {"reward/all_solved_tokens": 0.9},
    "all_wrong_prompts": {"reward/all_wrong_tokens": 0.9},
    "entropy_collapse": {"policy/entropy": lambda t: 0.5 * math.exp(-8 * t)},
    "entropy_explosion": {"policy/entropy": lambda t: 0.5 + 2 * t},
    "branch_collapse": {"rollout/effective_branches": 1.05},
    "duplicates": {"rollout/duplicates": 0.8},
    "prefix_overweight": {"policy/prefix_pull": 0.9, "policy/prefix_tokens": 0.1},
    "length_drift": {"rollout/length": lambda t: 20 + 60 * t, "reward/solved": 0.3, "reward/part/format": 0.7},
    "length_bias": {"rollout/length_bias": -0.9},
    "truncated_answers": {"rollout/truncated": 0.6},
    "stragglers": {"rollout/length_tail": 0.95},
    "idle_engine": {"time/idle_load": 0.95},
    "starved_prompts": {"rollout/starved_prompts": 0.3},
    "tool_failures": {"rollout/tool_failures": 0.9},
    "heavy_weights": {"policy/ess": 0.1},
    "stale_rollouts": {"staleness/mean": 5.0},
    "old_replay": {"staleness/replayed_mean": 100.0},
    "mismatch": {"policy/mismatch": 0.2},
    "held_out_falls": {"pass@1": lambda t: 0.6 - 0.5 * t},
    "proxy_reward": {"reward/mean": lambda t: 0.5 - 0.3 * t},
    "form_over_substance": {"reward/solved": 0.3, "reward/part/format": lambda t: 0.1 + 0.8 * t},
    "wrong_labels": {"reward/vote_wrong": 0.8},
    "crashes": {"rollout/failed_share": 0.2, "rollout/failed/verifier": 0.15},
    "retries": {"rollout/retries": 0.6},
    "noisy_verifier": {"reward/split_transcripts": 0.2},
    "split_answers": {"reward/split_answers": 0.7},
}


def log(over: Mapping[str, Value] | None = None, steps: int = 60, seed: int = 0) -> list[dict[str, Any]]:
    """Lines of a metrics file; every number is a course over the run with a little noise."""
    rng = np.random.default_rng(seed)
    courses: dict[str, Value] = {**HEALTHY, **(over or {})}
    held_out = courses.pop("pass@1", lambda t: 0.3 + 0.3 * t)
    lines: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        t = step / steps
        noise = {k: 1 + 0.02 * rng.standard_normal() for k in courses}
        numbers = {k: (v(t) if callable(v) else v) * noise[k] for k, v in courses.items()}
        lines.append({"kind": "train", "step": step, **numbers})
        if step % 10 == 0:
            rate = held_out(t) if callable(held_out) else held_out
            lines.append({"kind": "eval", "step": step, "eval/pass@1": rate, "eval/pass@1_low": rate - 0.08,
                          "eval/pass@1_high": rate + 0.08})  # fmt: skip
    return lines


def logged(over: Mapping[str, Value] | None = None, **options: Any) -> CheckedRun:
    return CheckedRun("planted", log(over, **options), settings={"counter": COUNTER})


def held(trees: Sequence[Tree], version: int | None = None) -> Rollouts:
    return Rollouts(table(trees), version)


def forest_run(trees: Sequence[Tree]) -> CheckedRun:
    return CheckedRun("forest", forests={0: lambda: held(trees)})


def group(
    id: str, rewards: Sequence[float], *, texts: Sequence[Sequence[int]] | None = None, **fields: Any
) -> Tree:  # fmt: skip
    """A flat tree with one trained leaf a reward; their tokens all differ unless given."""
    tree = Tree(id, [1, 2, 3], item=id)
    for i, reward in enumerate(rewards):
        tokens = np.asarray(texts[i] if texts else [10 + i, 11, 12 + i, 13], np.int32)
        size = len(tokens)
        tree.extend(
            0, tokens, status="done", finish="eos", usage="trained", scores={"reward": float(reward)},
            logp=np.full(size, -1.0, np.float32), sampling_logprob=np.full(size, -1.0, np.float32),
            version=np.full(size, 5, np.int32), **fields,
        )  # fmt: skip
    return tree


def mixed(count: int = 6) -> list[Tree]:
    return [group(f"t{i}", [1, 0, 1, 0]) for i in range(count)]
