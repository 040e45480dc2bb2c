"""Where a plan's budget went: tokens, prompts and rollouts by how hard the prompts are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rolltree.control.history import BANDS
from rolltree.control.order import PLAIN, Delivery
from rolltree.control.probe import in_flight


def allocation(delivered: Sequence[Delivery], bands: Mapping[str, str]) -> dict[str, float]:
    """Where a step's budget went: tokens, prompts and rollouts by difficulty band, tokens by level, rollouts by arm,
    groups without variance and those avoided.

    `bands` are those of the recent unassisted pass rate, by what was known before the step. A group without variance
    is avoided if its first delivery had none and all that was delivered for it has.
    """
    if not delivered:
        return {}
    out = {f"control.{what}.{name}": 0.0 for what in ("tokens", "rollouts", "prompts") for name in BANDS}
    for uid in {d.order.prompt.uid for d in delivered}:
        out[f"control.prompts.{bands[uid]}"] += 1
    groups: dict[int, list[Delivery]] = {}
    for d in delivered:
        out[f"control.tokens.{bands[d.order.prompt.uid]}"] += d.decoded
        out[f"control.rollouts.{bands[d.order.prompt.uid]}"] += d.n
        level = f"control.level.{d.order.prompt.item.level}"
        out[level] = out.get(level, 0.0) + d.decoded
        name = f"control.arm.{d.order.arm if d.order.for_training else 'measured'}"
        out[name] = out.get(name, 0.0) + d.n
        if d.order.for_training:
            groups.setdefault(d.order.prompt.place, []).append(d)
    for name in sorted({name for d in delivered for name in d.numbers}):
        out[f"control.{name}"] = float(np.mean([d.numbers[name] for d in delivered if name in d.numbers]))
    if any(d.order.probe is not None for d in delivered):
        out |= in_flight([p for d in delivered for p in d.probes])
    flat_first = flat = avoided = wasted = 0
    widths: list[int] = []
    for of_prompt in groups.values():
        rewards = [r for d in of_prompt for r in d.rewards]
        widths.append(len(rewards))
        first, now = _flat(of_prompt[0].rewards), _flat(rewards)
        flat_first += first
        flat += now
        avoided += first and not now
        wasted += sum(d.decoded for d in of_prompt) if now else 0
    return out | {
        "control.prompts": float(len(groups)),
        "control.flat_first": float(flat_first),
        "control.flat": float(flat),
        "control.flat_avoided": float(avoided),
        "control.tokens_in_flat": float(wasted),
        "control.width_least": float(min(widths, default=0)),
        "control.width_most": float(max(widths, default=0)),
        "control.width_mean": float(np.mean(widths)) if widths else 0.0,
        "control.assisted": float(sum(d.n for d in delivered if d.order.arm != PLAIN)),
    }  # fmt: skip


def _flat(rewards: Sequence[float]) -> bool:
    return not rewards or max(rewards) - min(rewards) <= 1e-9
