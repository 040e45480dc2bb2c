"""Logs and forests with one pathology each, and healthy ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rolltree.doctor import CheckedRun
from rolltree.train.rollouts import Rollouts
from rolltree.train.sources import Held
from rolltree.tree import Tree

Value = float | Callable[[float], float]

HEALTHY: dict[str, Value] = {
    "reward": lambda t: 0.3 + 0.3 * t, "solved": lambda t: 0.3 + 0.3 * t, "length": 20.0, "truncated": 0.01,
    "policy_entropy": lambda t: 0.5 - 0.15 * t, "gap_mean": 1e-6, "weight.ess": 0.98,
    "groups.flat": 0.2, "groups.solved_tokens": 0.1, "groups.hopeless_tokens": 0.15, "groups.duplicated": 0.2,
    "branches.effective": 6.0, "prefix.pull": 0.4, "prefix.tokens": 0.35, "lengths.bias": 0.1, "lengths.tail": 0.5,
    "seconds.idle_share": 0.5, "starved.prompts": 0.0, "tools.failed": 0.2, "lag.mean": 0.5, "lag.replayed": 0.1,
    "lag.replay_age": 3.0, "vote.wrong": 0.2, "failed.share": 0.0, "failed.verifier": 0.0, "failed.retries": 0.0,
    "verdicts.split": 0.0, "verdicts.answer_split": 0.05, "part.taught": lambda t: 0.3 + 0.3 * t,
    "part.format": lambda t: 0.6 + 0.3 * t,
}  # fmt: skip

PLANTED: dict[str, dict[str, Value]] = {
    "zero_variance": {"groups.flat": 0.9},
    "solved_prompts": {"groups.solved_tokens": 0.9},
    "hopeless_prompts": {"groups.hopeless_tokens": 0.9},
    "entropy_collapse": {"policy_entropy": lambda t: 0.5 * math.exp(-8 * t)},
    "entropy_explosion": {"policy_entropy": lambda t: 0.5 + 2 * t},
    "branch_collapse": {"branches.effective": 1.05},
    "duplicates": {"groups.duplicated": 0.8},
    "prefix_overweight": {"prefix.pull": 0.9, "prefix.tokens": 0.1},
    "length_drift": {"length": lambda t: 20 + 60 * t, "solved": 0.3, "part.format": 0.7},
    "length_bias": {"lengths.bias": -0.9},
    "truncated_answers": {"truncated": 0.6},
    "stragglers": {"lengths.tail": 0.95},
    "idle_engine": {"seconds.idle_share": 0.95},
    "starved_prompts": {"starved.prompts": 0.3},
    "tool_failures": {"tools.failed": 0.9},
    "heavy_weights": {"weight.ess": 0.1},
    "stale_rollouts": {"lag.mean": 5.0},
    "old_replay": {"lag.replay_age": 100.0},
    "engine_gap": {"gap_mean": 0.2},
    "held_out_falls": {"pass@1": lambda t: 0.6 - 0.5 * t},
    "proxy_reward": {"reward": lambda t: 0.5 - 0.3 * t},
    "form_over_substance": {"solved": 0.3, "part.format": lambda t: 0.1 + 0.8 * t},
    "wrong_labels": {"vote.wrong": 0.8},
    "crashes": {"failed.share": 0.2, "failed.verifier": 0.15},
    "retries": {"failed.retries": 0.6},
    "noisy_verifier": {"verdicts.split": 0.2},
    "split_answers": {"verdicts.answer_split": 0.7},
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
            lines.append({"kind": "eval", "step": step, "pass@1": rate, "pass@1_low": rate - 0.08,
                          "pass@1_high": rate + 0.08})  # fmt: skip
    return lines


def logged(over: Mapping[str, Value] | None = None, **options: Any) -> CheckedRun:
    return CheckedRun("planted", log(over, **options))


def held(trees: Sequence[Tree], version: int | None = None) -> Rollouts:
    return Rollouts(Held(list(trees)), version)


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
