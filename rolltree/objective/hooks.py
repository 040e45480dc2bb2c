"""What an objective may ask of the trainer beyond a loss: another step size, gradients path by path, a schedule.

Each is a protocol with one method. An objective without it costs nothing; `Composed` passes its surrogate's on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from rolltree.objective.batch import Batch, Objective, need_paths


@runtime_checkable
class Scheduled(Protocol):
    """An objective whose knobs follow the step of the run."""

    def at(self, step: int) -> Objective:
        """The objective for the step after so many finished ones."""
        ...


@runtime_checkable
class StepScaled(Protocol):
    """An objective that scales the optimizer's step by what it saw in the update's batches."""

    def step_factor(self, batches: Sequence[Batch]) -> float | None:
        """What to multiply this update's learning rate with, None = nothing; the batches carry no gradient."""
        ...


@dataclass(frozen=True, slots=True)
class Accumulation:
    """What an accumulator made of an update."""

    gradient: list[Tensor]
    """Of the loss, one tensor per parameter; empty where no path had an advantage."""
    loss: float
    metrics: dict[str, float]


class Accumulator(Protocol):
    """Puts the gradient of one update together from those of its paths, tree by tree; idle trees are left out."""

    def score(self, batch: Batch) -> Tensor:
        """The scalar whose gradient is wanted of a batch that holds a single path."""
        ...

    def add(self, batch: Batch, score: float, gradient: Sequence[Tensor]) -> None:
        """Take one path: its batch, its score and the score's gradient."""
        ...

    def result(self) -> Accumulation:
        """The update's gradient, once all paths were added."""
        ...


@runtime_checkable
class PathWise(Protocol):
    """An objective whose gradient needs something of each path's own gradient, such as its norm."""

    def accumulator(self) -> Accumulator | None:
        """An empty accumulator for one update; None = the loss is enough after all."""
        ...


def at_step(objective: Objective, step: int) -> Objective:
    """The objective as its schedule, if it has one, wants it."""
    return objective.at(step) if isinstance(objective, Scheduled) else objective


def step_factor(objective: Objective, batches: Sequence[Batch]) -> float | None:
    """What an objective wants the step scaled by; None = it leaves the step alone."""
    return objective.step_factor(batches) if isinstance(objective, StepScaled) else None


def accumulator_of(objective: Objective) -> Accumulator | None:
    """A fresh accumulator, if the objective needs gradients path by path."""
    return objective.accumulator() if isinstance(objective, PathWise) else None


def skips_idle(part: object) -> bool:
    """Whether an objective or correction gives the same gradient when actions without advantage are left out."""
    return bool(getattr(part, "skips_idle", False))


def one_path(batch: Batch, path: int) -> Batch:
    """The batch with a single one of its paths; the actions stand as they were."""
    paths = need_paths(batch, "a gradient path by path")
    mine = paths.path == path
    group = None if paths.group is None else paths.group[path : path + 1]
    only = replace(
        paths, index=paths.index[mine], path=torch.zeros_like(paths.path[mine]), advantage=paths.advantage[mine],
        weight=paths.weight[path : path + 1], count=1, group=group,
        share=None if paths.share is None else paths.share[mine],
    )  # fmt: skip
    return replace(batch, paths=only)
