"""Each control's claim on simulated prompts: a seed in, the method's number and what it is held against out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from rolltree.control.history import History
from rolltree.control.plan import Control
from studies.prompts.world import Log, PromptWorld, grouped, index, run


def varied(logs: Sequence[Log]) -> float:
    """Share of groups with variance."""
    return sum(log.effective for log in logs) / sum(log.groups for log in logs)


def chosen(control: Control, seed: int, steps: int = 50, skip: int = 10) -> list[Log]:
    """What a control chose from a pool of 400, after the first sweep of the pool."""
    return run(control, PromptWorld(400, seed=seed), steps)[skip:]


def visits(logs: Sequence[Log]) -> Counter[int]:
    """How often each prompt was trained."""
    return Counter(index(g[0].order) for log in logs for g in grouped(log.delivered).values())


def favoured(ours: Sequence[Log], even: Sequence[Log]) -> dict[str, float]:
    """Visits that no prompt gets where all are chosen alike: what is above the most visited one there."""
    most = max(visits(even).values())
    return {"visits beyond the most by uniform choice": float(sum(max(n - most, 0) for n in visits(ours).values()))}


def moved(logs: Sequence[Log], width: int = 8) -> int:
    """Rollouts that groups have above this width: what others lack where a step costs as much."""
    sizes = (sum(d.n for d in g) for log in logs for g in grouped(log.delivered).values())
    return sum(max(size - width, 0) for size in sizes)


def until(control: Control, world: PromptWorld, rollouts: int, width: int = 8) -> list[Log]:
    """Steps of 16 prompts until so many rollouts are drawn."""
    history, state, spent, logs = History(), control.start(), 0, list[Log]()
    while spent < rollouts:
        logs += run(control, world, 1, prompts=16, width=width, state=state, history=history, first=len(logs) + 1)
        spent += logs[-1].rollouts
    return logs


def mostly_hard(seed: int) -> PromptWorld:
    """200 prompts, of which half are solved less than one time in five."""
    return PromptWorld(200, seed=seed, mean=-1.5, spread=2.0, gain=0.1)


def hardest_quarter(world: PromptWorld) -> float:
    """True pass rate of the 50 prompts that were hardest at the start."""
    return float(world.rates[np.argsort(world.begun)[:50]].mean())


def bandit(seed: int) -> PromptWorld:
    """200 prompts that stand still."""
    return PromptWorld(200, seed=seed, spread=2.5, gain=0.0, drift=0.0)
