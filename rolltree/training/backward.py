"""The gradient of one update: forward, objective and backward over its micro-batches, in the way the objective asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from rolltree.objective.batch import Batch, Objective, fit, merge, step_wide
from rolltree.objective.hooks import Accumulator, StepScaled, accumulator_of, one_path
from rolltree.policy.packed import blank
from rolltree.policy.protocol import Policy, PolicyRead
from rolltree.training.config import TrainError
from rolltree.training.pack import Anchors, Micro, objective_batch
from rolltree.training.ranks.team import ALONE, Team
from rolltree.training.step_metrics import Gathered, GradientNoise, Watcher
from rolltree.tree import Tree


class DivergedError(TrainError):
    """The loss or the gradient left all bounds. No weight was changed by the update that did it."""

    def __init__(self, what: str, micro: Micro | None, rows: Sequence[int]) -> None:
        super().__init__(what)
        self.micro = micro
        """The one micro-batch that did it; None = their sum did."""
        self.rows = list(rows)
        """Rows of the table's trees that it drew on."""
        self.trees: list[Tree] = []
        """Those trees, once the error reaches whoever holds them."""

    def __reduce__(self) -> tuple[type[DivergedError], tuple[str, Micro | None, list[int]]]:
        return DivergedError, (str(self), self.micro, self.rows)


@dataclass(frozen=True, slots=True)
class StepKnobs:
    """What a step needs of the run's configuration."""

    token_budget: int = 2048
    log_entropy: bool = True
    mismatch_limit: float = 0.1
    loss_limit: float = 1e4
    held: int = 4


@dataclass(frozen=True, slots=True)
class Update:
    """The micro-batches of one update with all that stays fixed while they are read."""

    objective: Objective
    part: Sequence[Micro]
    anchors: Sequence[Anchors]
    version: int
    scale: float
    knobs: StepKnobs
    told: Gathered
    watchers: Sequence[Watcher]
    count: int
    """Micro-batches of the whole update; `part` is this rank's share of them."""
    passes: int = 0
    """How many every rank of a team makes; 0 = one for each of its own."""
    team: Team = ALONE
    noise: GradientNoise | None = None
    """Told of each prompt's gradient, where it is measured."""

    @property
    def blanks(self) -> int:
        """Passes for which this rank has no micro-batch."""
        return max(0, self.passes - len(self.part))


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What one rank says of its share of an update."""

    loss: float = 0.0
    seen: Sequence[Batch] = ()
    """Its batches without a graph, where the objective may scale the step by them."""
    error: DivergedError | None = None


def backward(policy: Policy, update: Update) -> StepOutcome:
    """Leave the gradient of the update's micro-batches on the parameters; a loss out of bounds is told, not raised."""
    accumulator = accumulator_of(update.objective)
    try:
        loss, seen = _summed(policy, update) if accumulator is None else _by_path(policy, update, accumulator)
    except DivergedError as error:
        return StepOutcome(error=error)
    return StepOutcome(loss, seen)


def _summed(policy: Policy, update: Update) -> tuple[float, list[Batch]]:
    objective, part = update.objective, update.part
    passes = len(part) + update.blanks
    held: list[PolicyRead | None] = [None] * passes
    if update.count > 1 and step_wide(objective):
        # A statistic of the whole update is known after all forwards: hold them, or where they are many read twice.
        keep = passes <= update.knobs.held
        with torch.set_grad_enabled(keep):
            reads = [_read(policy, update, micro) for micro in part]
            reads += [policy.read(blank()) for _ in range(update.blanks)]
        with torch.no_grad():
            mine = [_still(_batch(update, i, read)) for i, read in enumerate(reads[: len(part)])]
            objective = fit(objective, [batch for batches in update.team.share(mine) for batch in batches])
        held = [*reads] if keep else held
        del reads
    total, seen, error = 0.0, list[Batch](), list[DivergedError]()
    for i, micro in enumerate(part):
        read = held[i] or _read(policy, update, micro)
        held[i] = None
        batch = _batch(update, i, read)
        loss, metrics = objective(batch)
        try:
            total += _checked(float(loss.detach()), update, micro)
        except DivergedError as diverged:
            # Other ranks wait for this one's gradients until the update is over.
            if update.team is ALONE:
                raise
            error.append(diverged)
        loss.backward()
        if update.noise is not None:
            update.noise.add()
        update.told.add(metrics, float(micro.weight.sum()), update.scale)
        _note(update, i, read)
        if isinstance(objective, StepScaled):
            seen.append(_lean(batch))
    for read in held[len(part) :]:
        ((read or policy.read(blank())).logp.sum() * 0.0).backward()
    if error:
        raise error[0]
    for name, value in ({} if update.noise is None else update.noise.numbers()).items():
        update.told.add_one(name, value)
    return total, seen


def _by_path(policy: Policy, update: Update, accumulator: Accumulator) -> tuple[float, list[Batch]]:
    parameters = list(policy.parameters())
    seen: list[Batch] = []
    busy = _busy(update.part)
    for i, micro in enumerate(update.part):
        taught = [path for path, tree in enumerate([] if micro.group is None else micro.group) if int(tree) in busy]
        with torch.set_grad_enabled(bool(taught)):
            read = _read(policy, update, micro)
        batch = _batch(update, i, read)
        for path in taught:
            one = one_path(batch, path)
            score = accumulator.score(one)
            # Parameters a score does not depend on come back as None, which the stubs do not know.
            found = cast(
                "Sequence[Tensor | None]",
                torch.autograd.grad(score, parameters, retain_graph=path != taught[-1], allow_unused=True),
            )
            gradient = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]
            accumulator.add(one, float(score.detach()), gradient)
        _note(update, i, read)
        seen.append(_lean(batch))
    gathered = accumulator.result()
    for p, g in zip(parameters, gathered.gradient or [torch.zeros_like(p) for p in parameters], strict=True):
        p.grad = g
    with torch.no_grad():
        whole = merge(seen)
        update.told.add(update.objective(whole)[1], float(whole.weight.sum()), update.scale)
    for name, value in gathered.metrics.items():
        update.told.add_one(name, value)
    return _checked(gathered.loss, update, None), seen


def _busy(part: Sequence[Micro]) -> set[int]:
    """Trees in which some action has an advantage; of the others only the weights matter."""
    out: set[int] = set()
    for micro in part:
        if micro.paths is not None and micro.group is not None:
            out.update(micro.group[np.unique(micro.paths.path[micro.paths.advantage != 0])].tolist())
    return out


def _read(policy: Policy, update: Update, micro: Micro) -> PolicyRead:
    needs = update.objective.needs
    return policy.read(
        micro.packed, entropy="entropy" in needs, logits="logits" in needs, watch=update.knobs.log_entropy
    )


def _batch(update: Update, i: int, read: PolicyRead) -> Batch:
    return objective_batch(update.part[i], read, update.anchors[i], update.version, update.scale)


def _still(batch: Batch) -> Batch:
    """The same without the graph."""
    entropy, logits = (None if x is None else x.detach() for x in (batch.entropy, batch.logits))
    return replace(batch, logp=batch.logp.detach(), entropy=entropy, logits=logits)


def _lean(batch: Batch) -> Batch:
    """What a scaled step may look at, without the graph."""
    return replace(batch, logp=batch.logp.detach(), entropy=None, logits=None)


def _checked(loss: float, update: Update, micro: Micro | None) -> float:
    limit = update.knobs.loss_limit
    if np.isfinite(loss) and abs(loss) <= limit:
        return loss
    micros = update.part if micro is None else [micro]
    raise DivergedError(f"the loss is {loss:.4g} (limit {limit:g})", micro, [int(i) for m in micros for i in m.trees])


def _note(update: Update, i: int, read: PolicyRead) -> None:
    micro, fixed = update.part[i], update.anchors[i]
    if read.watched is not None:
        own = read.watched[torch.from_numpy(micro.weight > 0).to(read.watched.device)]
        if len(own):
            update.told.add({"entropy": own.mean()}, float(len(own)), 1.0)
    for watcher in update.watchers:
        watcher.add(micro, fixed.old if fixed.old is not None else read.logp.detach(), read.watched)
