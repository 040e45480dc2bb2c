"""pass@1 and pass@8 of a policy on the nano suite, per task and level.

Unbiased pass@k: 1 - C(n-c, k) / C(n, k) for c right of n samples, averaged over items (Chen et al. 2021,
https://arxiv.org/abs/2107.03374). Intervals are normal ones over items, which is what a new draw of items would change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import sqrt
from statistics import mean, stdev

from rolltree.compare.trace import LabError
from rolltree.engine.protocol import Engine, Sampling
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.task.protocol import Split, Task
from rolltree.training.evaluate import pass_at
from rolltree.tree.node import is_solved

Z95 = 1.96


@dataclass(frozen=True, slots=True)
class PolicyMeasure:
    """What one task at one level gives. Intervals are half-widths at 95 %."""

    task: str
    level: int
    items: int
    samples: int
    """Rollouts per item."""
    pass_1: float
    pass_1_interval: float
    pass_k: float
    pass_k_interval: float
    k: int
    equal_groups: float
    """Share of items whose samples all score the same: groups from which a group-relative method learns nothing."""
    tokens: float
    """Mean policy tokens a rollout."""


async def measure(
    engine: Engine,
    task: Task,
    *,
    items: int = 128,
    samples: int = 16,
    k: int = 8,
    split: Split = "test",
    seed: int = 0,
    temperature: float = 1.0,
) -> PolicyMeasure:
    """Sample every one of the first `items` different items of a split and count what is right."""
    if k > samples:
        raise LabError(f"pass@{k} needs at least {k} samples per item, not {samples}: sample more")
    drawn = islice(task.items(split, seed), 20 * items)
    chosen = list({item.id: item for item in drawn}.values())[:items]
    forest = await grow(
        Independent(samples), engine, task, chosen, seed=seed, sampling=Sampling(temperature=temperature),
        max_tokens=task.max_tokens,
    )  # fmt: skip
    groups = [[leaf.scores["reward"] for leaf in tree.leaves() if leaf.status == "done"] for tree in forest]
    if lost := sum(samples - len(group) for group in groups):
        raise LabError(f"{lost} of {samples * len(groups)} rollouts of {task.name} failed, so nothing was measured")
    right = [
        sum(is_solved(leaf.scores) for leaf in tree.leaves() if leaf.status == "done") for tree in forest
    ]  # fmt: skip
    ones, ks = [count / samples for count in right], [pass_at(count, samples, k) for count in right]
    lengths = [sum(len(n) for n in tree.path(leaf) if n.trainable) for tree in forest for leaf in tree.leaves()]
    return PolicyMeasure(
        task=task.name,
        level=task.level,
        items=len(chosen),
        samples=samples,
        pass_1=mean(ones),
        pass_1_interval=half_width(ones),
        pass_k=mean(ks),
        pass_k_interval=half_width(ks),
        k=k,
        equal_groups=mean(len(set(group)) == 1 for group in groups),
        tokens=mean(lengths),
    )


def half_width(values: Sequence[float]) -> float:
    """Half the normal 95 % interval of a mean."""
    return Z95 * stdev(values) / sqrt(len(values)) if len(values) > 1 else float("inf")
