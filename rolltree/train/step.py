"""One step of learning: objective, backward over micro-batches, clip, AdamW; and what is worth knowing about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from rolltree.credit.fold import Expanded, Folded
from rolltree.objective.batch import Objective, fit, step_wide
from rolltree.objective.clipped import Clipped
from rolltree.policy.language import LanguagePolicy
from rolltree.train.batch import Anchors, objective_batch
from rolltree.train.config import Optim, TrainError
from rolltree.train.gather import Gap, Gathered, Weights
from rolltree.train.pack import Micro, micro_batches
from rolltree.tree import Tree
from rolltree.tree.table import Table


class DivergedError(TrainError):
    """The loss or the gradient left all bounds. No weight was changed by the update that did it."""

    def __init__(self, what: str, micro: Micro | None, trees: Sequence[Tree]) -> None:
        super().__init__(what)
        self.micro = micro
        """The one micro-batch that did it; None = their sum did."""
        self.trees = list(trees)


@dataclass(frozen=True, slots=True)
class StepKnobs:
    """What a step needs of the run's configuration."""

    token_budget: int = 2048
    log_entropy: bool = True
    gap_limit: float = 0.1
    loss_limit: float = 1e4


@dataclass(slots=True)
class Learner:
    """The trained policy with its optimizer, and the fixed policies it is compared with."""

    policy: LanguagePolicy
    optimizer: torch.optim.Optimizer
    optim: Optim
    anchors: Mapping[str, LanguagePolicy]
    """"reference" and "previous", where the objective needs them."""
    updates: int = 0

    def step(
        self,
        objective: Objective,
        table: Table,
        folded: Folded,
        paths: Expanded | None,
        *,
        version: int,
        knobs: StepKnobs,
    ) -> dict[str, float]:
        """All updates of one step; returns its metrics."""  # fmt: skip
        budget = knobs.token_budget
        whole = "group" in objective.needs
        parts = [
            micro_batches(table, _taught(objective, folded), budget, paths=paths, whole_trees=whole, trees=trees)
            for trees in _shares(table, self.optim.minibatches)
        ]
        parts = [p for p in parts if p]
        if not parts:
            return {"updates": 0.0, "trained_tokens": 0.0}
        total = float(folded.weight.sum())
        once = len(parts) * self.optim.epochs == 1
        fixed = [[self._anchors(objective, micro, once) for micro in part] for part in parts]
        if "previous" in self.anchors:
            self.anchors["previous"].model.load_state_dict(self.policy.model.state_dict())
        told = Gathered(table.trees)
        gap, weights = Gap(knobs.gap_limit, version), Weights(table)
        for epoch in range(self.optim.epochs):
            for part, anchors in zip(parts, fixed, strict=True):
                share = sum(float(m.weight.sum()) for m in part)
                scale = total / share if len(parts) > 1 and share > 0 else 1.0
                self._update(
                    objective, part, anchors, version=version, scale=scale, knobs=knobs, told=told,
                    gaps=(gap, weights) if epoch == 0 else (),
                )  # fmt: skip
        return told.means() | gap.means() | weights.means() | {
            "updates": float(self.optim.epochs * len(parts)),
            "lr": self.lr,
            "trained_tokens": float(sum((m.weight > 0).sum() for p in parts for m in p)),
            "packed_tokens": float(sum(len(m.packed) for p in parts for m in p)),
            "micro_batches": float(sum(len(p) for p in parts)),
        }  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """What must survive besides the policy's weights."""
        fixed = {name: policy.model.state_dict() for name, policy in self.anchors.items()}
        return {"optimizer": self.optimizer.state_dict(), "updates": self.updates, "anchors": fixed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to that state."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = int(state["updates"])
        for name, policy in self.anchors.items():
            policy.model.load_state_dict(state["anchors"][name])

    @property
    def lr(self) -> float:
        """The learning rate of the latest update."""
        return self.optim.lr * min(1.0, self.updates / max(self.optim.warmup, 1))

    def _anchors(self, objective: Objective, micro: Micro, once: bool) -> Anchors:
        with torch.no_grad():
            old = None if once else self.policy.read(micro.packed).logp
            fixed = {
                name: self.anchors[name].read(micro.packed).logp for name in ("reference", "previous")
                if name in objective.needs
            }  # fmt: skip
        return Anchors(old, **fixed)

    def _fitted(
        self, objective: Objective, part: Sequence[Micro], anchors: Sequence[Anchors], version: int, scale: float
    ) -> Objective:
        """Fix what must be one number for the whole update; costs a forward over it without gradient."""
        with torch.no_grad():
            reads = (
                self.policy.read(m.packed, entropy="entropy" in objective.needs, logits="logits" in objective.needs)
                for m in part
            )
            batches = [
                objective_batch(micro, read, fixed, version, scale)
                for micro, read, fixed in zip(part, reads, anchors, strict=True)
            ]
            return fit(objective, batches)

    def _update(
        self, objective: Objective, part: Sequence[Micro], anchors: Sequence[Anchors], *, version: int, scale: float,
        knobs: StepKnobs, told: Gathered, gaps: Sequence[Gap | Weights],
    ) -> None:  # fmt: skip
        self.optimizer.zero_grad(set_to_none=True)
        if len(part) > 1 and step_wide(objective):
            objective = self._fitted(objective, part, anchors, version, scale)
        loss_sum = 0.0
        for micro, fixed in zip(part, anchors, strict=True):
            read = self.policy.read(
                micro.packed, entropy="entropy" in objective.needs, logits="logits" in objective.needs,
                watch=knobs.log_entropy,
            )  # fmt: skip
            loss, metrics = objective(objective_batch(micro, read, fixed, version, scale))
            value = float(loss.detach())
            if not np.isfinite(value) or abs(value) > knobs.loss_limit:
                raise DivergedError(
                    f"the loss is {value:.4g} (limit {knobs.loss_limit:g})", micro, [told.trees[i] for i in micro.trees]
                )
            loss.backward()
            loss_sum += value
            told.add(metrics, float(micro.weight.sum()), scale)
            if read.watched is not None:
                own = read.watched[torch.from_numpy(micro.weight > 0).to(read.watched.device)]
                if len(own):
                    told.add({"policy_entropy": own.mean()}, float(len(own)), 1.0)
            for gap in gaps:
                gap.add(micro, fixed.old if fixed.old is not None else read.logp.detach())
        norm = float(torch.nn.utils.clip_grad_norm_(list(self.policy.parameters()), self.optim.clip_norm))
        if not np.isfinite(norm):
            raise DivergedError(f"the gradient's norm is {norm}", part[0] if len(part) == 1 else None,
                           [told.trees[i] for m in part for i in m.trees])  # fmt: skip
        self.updates += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
        self.optimizer.step()
        told.add_one("loss", loss_sum)
        told.add_one("grad_norm", norm)


def _taught(objective: Objective, folded: Folded) -> Folded:
    """Leave out actions without any advantage where they cannot matter: no penalty, no normaliser reads them."""
    if type(objective) is not Clipped:
        return folded
    idle = (folded.gain == 0) & (folded.loss == 0)
    return Folded(folded.gain, folded.loss, np.where(idle, 0.0, folded.weight))


def _shares(table: Table, count: int) -> list[list[int]]:
    edges = np.linspace(0, len(table.trees), count + 1).round().astype(int)
    return [list(range(a, b)) for a, b in pairwise(edges) if b > a]


def make_optimizer(policy: LanguagePolicy, optim: Optim) -> torch.optim.AdamW:
    """AdamW with decay on matrices only."""
    decayed = [p for p in policy.parameters() if p.ndim > 1]
    plain = [p for p in policy.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": optim.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(
        [g for g in groups if g["params"]], lr=optim.lr, betas=optim.betas, eps=optim.eps, fused=True
    )
