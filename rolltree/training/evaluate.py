"""Evaluation on held-out items: pass@1 and pass@k with intervals."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import islice

import numpy as np

from rolltree.control.ledger import Budget
from rolltree.engine.protocol import Engine, Sampling
from rolltree.generate.independent import Independent
from rolltree.generate.runner import Progress, grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.metrics.reward import each_part, wilson
from rolltree.metrics.rollouts import Rollouts
from rolltree.task.protocol import Task, distinct
from rolltree.tree import Forest
from rolltree.tree.table import table

OFTEN = 0.25
"""Seconds between two counts of what an evaluation has done."""


def pass_at(solved: int, samples: int, k: int) -> float:
    """Unbiased chance that at least one of k samples is right: 1 − C(n−c, k)/C(n, k) (Chen et al. 2021, eq. 1)."""
    if samples - solved < k:
        return 1.0
    return 1.0 - math.comb(samples - solved, k) / math.comb(samples, k)


async def evaluate(
    engine: Engine, task: Task, *, items: int, samples: int, seed: int, limit: int, temperature: float = 1.0,
    strategy: TreeStrategy | None = None, tell: Callable[[int, int], object] = lambda done, items: None,
) -> tuple[dict[str, float], Forest]:  # fmt: skip
    """Grow independent samples of the first held-out items; the same items and streams at every call.

    With a `strategy` it grows them instead, as many as it makes. Of a finite task no item is asked twice, so fewer than
    `items` may be measured. `tell` hears now and then how many items are done, of how many.
    """
    held = distinct(task, "test")
    items = items if held is None else min(items, held)
    budget, forest, heard = Budget(name="evaluation"), Forest(), time.monotonic()
    tell(0, items)

    def progress(_: Progress) -> None:
        nonlocal heard
        if time.monotonic() - heard > OFTEN:
            tell(sum(all(leaf.ended for leaf in tree.leaves()) for tree in forest), items)
            heard = time.monotonic()

    await grow(
        strategy or Independent(samples), engine, task, islice(task.items("test", seed), items), seed=seed,
        budget=budget, max_tokens=limit, sampling=Sampling(temperature=temperature), forest=forest, progress=progress,
        asides=False,
    )  # fmt: skip
    return summary(forest, samples) | {"eval/decoded": float(budget.spent.decoded)}, forest


def summary(forest: Forest, k: int) -> dict[str, float]:
    """pass@1, pass@k, mean outcome and failures of an evaluation's forest. Failed leaves count in neither rate."""
    r = Rollouts(table(forest))
    done = r.count(r.judged)
    items = np.flatnonzero(done > 0)
    right = r.count(r.solved)
    ones = [float(right[i] / done[i]) for i in items]
    many = [pass_at(int(right[i]), int(done[i]), min(k, int(done[i]))) for i in items]
    out = {"eval/reward": float(r.reward[r.judged].mean()) if len(items) else math.nan}
    for name, values in (("pass@1", ones), (f"pass@{k}", many)):
        rate = wilson(float(np.mean(values)) if values else math.nan, len(values))
        out |= {f"eval/{name}": rate.value, f"eval/{name}_low": rate.low, f"eval/{name}_high": rate.high}
    out |= {f"eval/part/{name}": value for name, value in each_part(r).items()}
    return out | {
        "eval/items": float(len(items)), "eval/failed": float(r.is_("status", "failed")[r.leaf].sum()),
        "eval/length": float(r.own[r.judged].mean()) if len(items) else math.nan,
    }  # fmt: skip
