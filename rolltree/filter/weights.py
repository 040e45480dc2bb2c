"""Other weights and gates for a reward's parts: a weight of 0 leaves a part out, so that nobody has to measure it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rolltree.filter.rewards import RewardError, Rewards


def weighed(rewards: Rewards, weights: Mapping[str, float], gates: Mapping[str, str] | None = None) -> Rewards:
    """The same reward with these weights, and with gates by part; a part that is not named keeps its own."""
    names = [part.name for part in rewards.parts]
    for name, weight in weights.items():
        if name not in names:
            raise RewardError(f"{name!r} is weighed and is not a part; the reward has {', '.join(names)}")
        if weight < 0:
            raise RewardError(f"part {name!r} weighs {weight}; give 0 to leave it out, or more")
    parts = (replace(part, weight=weights.get(part.name, part.weight)) for part in rewards.parts)
    shut = gates or {}
    kept = tuple(replace(part, gate=shut.get(part.name, part.gate)) for part in parts if part.weight > 0)
    if not kept:
        raise RewardError(f"no part of {', '.join(names)} weighs anything; give one a weight above 0")
    return replace(rewards, parts=kept)
