"""Evaluation on held-out items: pass@1 and pass@k with intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice

import numpy as np

from rolltree.control.ledger import Budget
from rolltree.engine.protocol import Engine, Sampling
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.task.protocol import Task, distinct
from rolltree.task.solved import is_solved
from rolltree.tree import Forest


@dataclass(frozen=True, slots=True)
class Rate:
    """A mean over items with a 95 % interval."""

    value: float
    low: float
    high: float


def pass_at(solved: int, samples: int, k: int) -> float:
    """Unbiased chance that at least one of k samples is right: 1 − C(n−c, k)/C(n, k) (Chen et al. 2021, eq. 1)."""
    if samples - solved < k:
        return 1.0
    return 1.0 - math.comb(samples - solved, k) / math.comb(samples, k)


def wilson(mean: float, items: int, z: float = 1.959964) -> Rate:
    """Wilson's score interval, with items as the unit.

    For shares per item it is wider than need be, because p(1−p) bounds their variance; it is never empty at 0 or 1.
    """
    if items == 0:
        return Rate(math.nan, math.nan, math.nan)
    centre = (mean + z * z / (2 * items)) / (1 + z * z / items)
    half = z * math.sqrt(mean * (1 - mean) / items + z * z / (4 * items * items)) / (1 + z * z / items)
    return Rate(mean, max(0.0, centre - half), min(1.0, centre + half))


async def evaluate(
    engine: Engine, task: Task, *, items: int, samples: int, seed: int, limit: int, temperature: float = 1.0
) -> tuple[dict[str, float], Forest]:
    """Grow independent samples of the first held-out items; the same items and streams at every call.

    Of a finite task no item is asked twice, so fewer than `items` may be measured.
    """
    held = distinct(task, "test")
    items = items if held is None else min(items, held)
    budget = Budget(name="evaluation")
    forest = await grow(
        Independent(samples), engine, task, islice(task.items("test", seed), items), seed=seed, budget=budget,
        max_tokens=limit, sampling=Sampling(temperature=temperature),
    )  # fmt: skip
    return summary(forest, samples) | {"decoded": float(budget.spent.decoded)}, forest


def summary(forest: Forest, k: int) -> dict[str, float]:
    """pass@1, pass@k, mean outcome and failures of an evaluation's forest. Failed leaves count in neither rate."""
    ones: list[float] = []
    many: list[float] = []
    rewards: list[float] = []
    lengths: list[int] = []
    failed = 0
    for tree in forest:
        done = [n for n in tree.leaves() if n.status == "done" and "reward" in n.scores]
        failed += sum(n.status == "failed" for n in tree.leaves())
        if not done:
            continue
        solved = sum(is_solved(n.scores) for n in done)
        ones.append(solved / len(done))
        many.append(pass_at(solved, len(done), min(k, len(done))))
        rewards.extend(n.scores["reward"] for n in done)
        lengths.extend(sum(len(m) for m in tree.path(n) if m.trainable) for n in done)
    out = {"reward": float(np.mean(rewards)) if rewards else math.nan}
    for name, values in (("pass@1", ones), (f"pass@{k}", many)):
        rate = wilson(float(np.mean(values)) if values else math.nan, len(values))
        out |= {name: rate.value, f"{name}_low": rate.low, f"{name}_high": rate.high}
    return out | {
        "items": float(len(ones)), "failed": float(failed), "length": float(np.mean(lengths)) if lengths else math.nan,
    }  # fmt: skip
