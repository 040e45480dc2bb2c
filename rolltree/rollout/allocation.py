"""Where a plan's budget went: tokens, prompts and rollouts by how hard the prompts are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rolltree.control.history import BANDS
from rolltree.control.order import Delivery
from rolltree.control.probe import in_flight


def allocation(delivered: Sequence[Delivery], bands: Mapping[str, str]) -> dict[str, float]:
    """Where a step's budget went: tokens, prompts and rollouts by difficulty band, tokens by level, rollouts by arm,
    groups without variance and those avoided.

    `bands` are those of the recent unassisted pass rate, by what was known before the step. A group without variance
    is avoided if its first delivery had none and all that was delivered for it has.
    """
    if not delivered:
        return {}
    out = {f"budget/{what}/{name}": 0.0 for what in ("tokens", "rollouts", "prompts") for name in BANDS}
    for uid in {d.order.prompt.uid for d in delivered}:
        out[f"budget/prompts/{bands[uid]}"] += 1
    uids = {d.order.prompt.uid for d in delivered}
    out["budget/revisited"] = 1.0 - out["budget/prompts/new"] / len(uids)
    out["budget/other_levels"] = float(len({d.order.prompt.item.level for d in delivered}) - 1)
    groups: dict[int, list[Delivery]] = {}
    for d in delivered:
        out[f"budget/tokens/{bands[d.order.prompt.uid]}"] += d.decoded
        out[f"budget/rollouts/{bands[d.order.prompt.uid]}"] += d.n
        level = f"budget/level/{d.order.prompt.item.level}"
        out[level] = out.get(level, 0.0) + d.decoded
        name = f"budget/arm/{d.order.arm if d.order.for_training else 'measured'}"
        out[name] = out.get(name, 0.0) + d.n
        if d.order.for_training:
            groups.setdefault(d.order.prompt.place, []).append(d)
    for name in sorted({name for d in delivered for name in d.numbers}):
        out[f"budget/control/{name}"] = float(np.mean([d.numbers[name] for d in delivered if name in d.numbers]))
    if any(d.order.probe is not None for d in delivered):
        out |= in_flight([p for d in delivered for p in d.probes])
    first_alike = avoided = wasted = 0
    for of_prompt in groups.values():
        rewards = [r for d in of_prompt for r in d.rewards]
        first, now = _zero_variance(of_prompt[0].rewards), _zero_variance(rewards)
        first_alike += first
        avoided += first and not now
        wasted += sum(d.decoded for d in of_prompt) if now else 0
    return out | {
        "budget/groups": float(len(groups)),
        "budget/zero_variance_first": float(first_alike),
        "budget/zero_variance_avoided": float(avoided),
        "budget/zero_variance_tokens": float(wasted),
    }  # fmt: skip


def _zero_variance(rewards: Sequence[float]) -> bool:
    return not rewards or max(rewards) - min(rewards) <= 1e-9
