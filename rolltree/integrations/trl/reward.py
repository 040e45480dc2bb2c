"""The outcome of each rollout as a TRL reward function: the verifier has judged already, so it only hands over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rolltree.integrations.errors import AdaptError

REWARD = "rolltree_reward"
ADVANTAGE = "rolltree_advantage"
NUMBERS = "rolltree_numbers"
"""Extra fields of a rollout: outcome per row, advantages per row and token, numbers of the whole generation."""


def rolltree_reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
    """Pass to TRL as a reward function. None for rows without an outcome, which TRL leaves out of every mean.

    Numbers of the generation (masked rows, failures, decoded tokens, …) are logged as `rolltree/NAME`.
    """
    rewards: list[float | None] | None = columns.get(REWARD)
    if rewards is None:
        raise AdaptError("rolltree_reward needs rollouts of Rolltree: pass rollout_func=TreeRollouts(…) to the trainer")
    numbers: Sequence[Mapping[str, float]] = columns.get(NUMBERS, ())
    log_metric = columns.get("log_metric")
    if numbers and log_metric is not None:
        for name, value in numbers[0].items():
            log_metric(f"rolltree/{name}", value)
    return rewards
