"""Random trees of rollouts, folded (each action once) and written out (every path on its own)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import settings

from rolltree.objective.batch import Batch, Paths

settings.register_profile("objective", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("objective")


@dataclass(frozen=True)
class Pair:
    """The same rollouts twice: `folded` over shared actions, `flat` with every path written out."""

    folded: Batch
    flat: Batch
    index: torch.Tensor


def make_pair(seed: int, *, drift: float = 0.5, missing: float = 0.0, constant: bool = False) -> Pair:
    """A random forest of two trees; per-path advantages (constant along a path if asked) and unequal leaf weights."""
    rng = np.random.default_rng(seed)
    runs: list[list[int]] = []
    groups: list[int] = []
    size = 0
    for tree in range(2):
        open_paths: list[tuple[list[int], int]] = [([], 0)]
        while open_paths:
            prefix, depth = open_paths.pop()
            length = int(rng.integers(0 if depth else 1, 5))
            prefix = prefix + list(range(size, size + length))
            size += length
            forks = int(rng.integers(2, 4)) if depth < 1 or (depth < 3 and rng.random() < 0.35) else 0
            if not forks:
                runs.append(prefix)
                groups.append(tree)
            open_paths += [(prefix, depth + 1)] * forks
    index = torch.tensor([i for run in runs for i in run])
    path = torch.tensor([leaf for leaf, run in enumerate(runs) for _ in run])
    weight = torch.tensor(rng.uniform(0.2, 1.0, len(runs)))
    weight = weight / weight[path].sum()
    per_leaf = torch.tensor(rng.normal(size=len(runs)))[path]
    advantage = per_leaf if constant else per_leaf + 0.7 * torch.tensor(rng.normal(size=len(path)))
    paths = Paths(index, path, advantage, weight, len(runs), torch.tensor(groups))

    def of_actions(scale: float, centre: float = 0.0) -> torch.Tensor:
        return torch.tensor(rng.normal(centre, scale, size)) if size else torch.zeros(0, dtype=torch.float64)

    old = -torch.tensor(rng.exponential(1.0, size))
    sampled = old + of_actions(drift)
    sampled[torch.tensor(rng.random(size) < missing)] = torch.nan
    folded = Batch(
        logp=(old + of_actions(drift)).requires_grad_(),
        old=old,
        gain=torch.zeros(size, dtype=torch.float64),
        loss=torch.zeros(size, dtype=torch.float64),
        weight=torch.zeros(size, dtype=torch.float64).index_add(0, index, weight[path]),
        sampled=sampled,
        reference=old + of_actions(drift),
        entropy=torch.tensor(rng.exponential(0.7, size)).requires_grad_(),
        lag=torch.tensor(rng.integers(-1, 5, size)),
        previous=old + of_actions(drift / 2),
        forced=torch.tensor(rng.random(size) < 0.2),
        paths=paths,
    )
    credit = weight[path] * advantage
    folded = replace(
        folded,
        gain=folded.gain.index_add(0, index, credit.clamp(min=0)),
        loss=folded.loss.index_add(0, index, credit.clamp(max=0)),
    )
    return Pair(folded, write_out(folded), index)


def write_out(batch: Batch) -> Batch:
    """Every path's actions on their own: nothing is shared, and the two channels hold one advantage each."""
    paths = batch.paths
    assert paths is not None
    credit = paths.entry_weight * paths.advantage

    def take(values: torch.Tensor | None) -> torch.Tensor | None:
        return None if values is None else values[paths.index]

    return replace(
        batch,
        logp=batch.logp[paths.index],
        old=batch.old[paths.index],
        gain=credit.clamp(min=0),
        loss=credit.clamp(max=0),
        weight=paths.entry_weight,
        sampled=take(batch.sampled),
        reference=take(batch.reference),
        entropy=take(batch.entropy),
        lag=take(batch.lag),
        previous=take(batch.previous),
        forced=take(batch.forced),
        logits=take(batch.logits),
        paths=replace(paths, index=torch.arange(len(paths.index))),
    )


@pytest.fixture
def pair() -> Pair:
    """One fixed pair."""
    return make_pair(0)
