"""One step of learning: its updates (backward, clip, AdamW), the policies it compares with, and its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch

from rolltree.credit.fold import Expanded, Folded
from rolltree.objective.batch import CreditWide, Objective
from rolltree.objective.hooks import accumulator_of, skips_idle, step_factor
from rolltree.objective.staleness import scaled_step
from rolltree.policy.packed import Packed, blank
from rolltree.policy.protocol import Policy
from rolltree.training.backward import DivergedError, StepKnobs, Update, backward
from rolltree.training.config import Optim
from rolltree.training.optimizer import averaged, learning_rate
from rolltree.training.pack import Anchors, Micro, micro_batches
from rolltree.training.ranks.team import ALONE, Team
from rolltree.training.step_metrics import Gathered, GradientNoise, ImportanceWeights, Mismatch, Watcher
from rolltree.tree.table import Table

OF_UPDATES = frozenset({"loss", "grad_norm", "step_factor", "grad_variance", "noise_scale"})
"""What an update says of itself; all else comes from its objective."""


@dataclass(frozen=True, slots=True)
class Work:
    """The micro-batches of one step, update by update, with what is needed to learn from them."""

    objectives: Sequence[Objective]
    """Per update: the objective, with what credit decides of it."""
    parts: Sequence[Sequence[Micro]]
    scales: Sequence[float]
    """Per update, what its weights are multiplied with to stand for the whole step."""
    counts: Sequence[int]
    """Per update, its micro-batches on all ranks; `parts` may hold one rank's share of them."""
    version: int
    knobs: StepKnobs
    optim: Optim
    prompts: Sequence[int] = ()
    """Per update, the prompts that it stands for, those without a gradient included."""
    passes: Sequence[int] = ()
    """Per update, how many passes each rank of a team makes; none where there is one rank."""


class RankGroup(Protocol):
    """Ranks that make a learner's steps for it; see `rolltree.training.ranks.driver`."""

    def run_updates(self, work: Work, watchers: Sequence[Watcher]) -> Gathered:
        """Make all updates of one step and bring the learner's policy up to date."""
        ...

    def state(self) -> dict[str, Any]:
        """The whole states of the optimizer and of the fixed policies."""
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over the learner's policy and whole states of its optimizer and of the fixed policies."""
        ...

    def reanchor(self, name: str) -> None:
        """Let a fixed policy be the current one on every rank."""
        ...


@dataclass(slots=True)
class Learner:
    """The trained policy with its optimizer, and the fixed policies it is compared with."""

    policy: Policy
    optimizer: torch.optim.Optimizer
    optim: Optim
    anchors: Mapping[str, Policy]
    """"reference", "previous" and "ewma", where the objective needs them."""
    updates: int = 0
    averaged: float = 1.0
    """Mass of the weights that "ewma" is the mean of, the first counting as one."""
    team: Team = ALONE
    """Ranks that this learner is one of."""
    crew: RankGroup | None = None
    """Ranks that make the steps instead of this process alone."""

    def step(
        self,
        objective: Objective,
        table: Table,
        folded: Folded,
        paths: Expanded | None,
        *,
        version: int,
        knobs: StepKnobs,
        watchers: Sequence[Watcher] = (),
    ) -> dict[str, float]:
        """All updates of one step; returns its metrics."""  # fmt: skip
        # Where gradients are wanted path by path, each path is a micro-batch of its own.
        budget = knobs.token_budget if accumulator_of(objective) is None and not self.optim.gradient_noise else 1
        shares = _shares(table, self.optim)
        settled = [_settled(objective, table, paths, trees) for trees in shares]
        objective = next(iter(settled), objective)
        paths = None if objective.level == "token" else paths
        # A tree that is computed in pieces need not be divided to fit.
        whole = "group" in objective.needs or self.policy.compute.piece > 0 or self.optim.gradient_noise
        per_tree = np.bincount(np.repeat(table.tree, table.length), folded.weight, minlength=len(table.trees))
        if skips_idle(objective):
            folded, paths = _taught(folded), None if paths is None else _taught_paths(paths)
        objectives: list[Objective] = []
        parts: list[list[Micro]] = []
        prompts: list[int] = []
        scales: list[float] = []
        for own, trees in zip(settled, shares, strict=True):
            part = micro_batches(table, folded, budget, paths=paths, whole_trees=whole, trees=trees)
            if part:
                objectives.append(own)
                parts.append(part)
                prompts.append(len(trees))
                scales.append(float(per_tree.sum() / per_tree[trees].sum()))
        if not parts:
            return {"optim/updates": 0.0, "budget/trained": 0.0}
        mismatch, weights = Mismatch(knobs.mismatch_limit, version), ImportanceWeights(table)
        work = Work(objectives, parts, scales, [len(part) for part in parts], version, knobs, self.optim, prompts)
        try:
            told = (self if self.crew is None else self.crew).run_updates(work, (mismatch, weights, *watchers))
        except DivergedError as error:
            error.trees = [table.trees[row] for row in error.rows]
            raise
        return {_named(name): value for name, value in told.means().items()} | mismatch.means() | weights.means() | {
            "optim/updates": float(self.optim.epochs * len(parts)),
            "optim/lr": self.lr,
            "budget/trained": float(sum((m.weight > 0).sum() for p in parts for m in p)),
            "budget/packed": float(sum(len(m.packed) for p in parts for m in p)),
            "optim/micro_batches": float(sum(len(p) for p in parts)),
        }  # fmt: skip

    def run_updates(self, work: Work, watchers: Sequence[Watcher]) -> Gathered:
        """All updates of one step; a member of a team makes them at the same time as the others, on its own share."""
        self.optim = work.optim
        once = len(work.parts) * self.optim.epochs == 1
        self.team.unite(self.policy)
        passes = work.passes or [0] * len(work.parts)
        sizes = work.prompts or [0] * len(work.parts)
        fixed: list[list[Anchors]] = []
        for objective, part, rounds in zip(work.objectives, work.parts, passes, strict=True):
            packed = [micro.packed for micro in part] + [blank()] * (rounds - len(part))
            fixed.append([self._anchors(objective, row, once) for row in packed][: len(part)])
        if "previous" in self.anchors:
            self.reanchor("previous")
        told = Gathered()
        for epoch in range(self.optim.epochs):
            updates = zip(work.objectives, work.parts, fixed, work.scales, work.counts, passes, sizes, strict=True)
            for objective, part, anchors, scale, count, rounds, prompts in updates:
                seen = watchers if epoch == 0 else ()
                noise = GradientNoise(self.policy, prompts) if work.optim.gradient_noise else None
                self._update(
                    Update(
                        objective, part, anchors, work.version, scale, work.knobs, told, seen, count, rounds,
                        self.team, noise,
                    )
                )  # fmt: skip
        return told

    def state_dict(self) -> dict[str, Any]:
        """What must survive besides the policy's weights."""
        if self.crew is not None:
            return {**self.crew.state(), "updates": self.updates}
        fixed = {name: policy.state_dict() for name, policy in self.anchors.items()}
        state = {"optimizer": self.optimizer.state_dict(), "updates": self.updates, "anchors": fixed}
        return state | ({"averaged": self.averaged} if "ewma" in self.anchors else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to that state."""
        self.updates, self.averaged = int(state["updates"]), float(state.get("averaged", 1.0))
        if self.crew is not None:
            self.crew.load(state)
            return
        for name, policy in self.anchors.items():
            policy.load_state_dict(state["anchors"][name])
        self.optimizer.load_state_dict(state["optimizer"])

    def reanchor(self, name: str) -> None:
        """Let a fixed policy be the current one from here on."""
        if self.crew is None:
            self.anchors[name].load_state_dict(self.policy.state_dict())
        else:
            self.crew.reanchor(name)

    @property
    def lr(self) -> float:
        """The learning rate of the latest update."""
        return learning_rate(self.optim, self.updates)

    def _anchors(self, objective: Objective, packed: Packed, once: bool) -> Anchors:
        with torch.no_grad():
            old = None if once else self.policy.read(packed).logp
            fixed = {
                name: self.anchors[name].read(packed).logp for name in ("reference", "previous", "ewma")
                if name in objective.needs
            }  # fmt: skip
        return Anchors(old, **fixed)

    def _update(self, update: Update) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.team.unite(self.policy)
        part, told = update.part, update.told
        outcomes = self.team.share(backward(self.policy, update))
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        self.team.reduce(self.policy)
        norm = self.team.clip(self.policy, self.optim.clip_norm)
        if not np.isfinite(norm):
            rows = [row for mine in self.team.share([int(i) for m in part for i in m.trees]) for row in mine]
            raise DivergedError(
                f"the gradient's norm is {norm}", part[0] if len(part) == update.count == 1 else None, rows
            )
        seen = [batch for outcome in outcomes for batch in outcome.seen]
        factor = step_factor(update.objective, seen) if seen else None
        self.updates += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
        with nullcontext() if factor is None else scaled_step(self.optimizer, factor):
            self.optimizer.step()
        if "ewma" in self.anchors:
            self.averaged = averaged(self.anchors["ewma"], self.policy, self.averaged, self.optim.proximal_decay)
        told.add_one("loss", sum(outcome.loss for outcome in outcomes))
        told.add_one("grad_norm", norm)
        if factor is not None:
            told.add_one("step_factor", factor)


def _named(name: str) -> str:
    """A metric's name, from what an objective or an update calls its number."""
    return f"{'optim' if name in OF_UPDATES else 'policy'}/{name}"


def _settled(objective: Objective, table: Table, paths: Expanded | None, trees: Sequence[int]) -> Objective:
    """The objective for an update of these trees, before any action is read or left out."""
    if not isinstance(objective, CreditWide) or paths is None:
        return objective
    group = table.leaf_tree[paths.leaf]
    groups, taught = (np.unique(x) for x in (group, group[paths.path[paths.advantage != 0]]))
    return objective.settle(*(int(np.isin(x, trees).sum()) for x in (groups, taught)))


def _taught(folded: Folded) -> Folded:
    """Without the actions that have no advantage."""
    idle = (folded.gain == 0) & (folded.loss == 0)
    return Folded(folded.gain, folded.loss, np.where(idle, 0.0, folded.weight))


def _taught_paths(paths: Expanded) -> Expanded:
    """Without the paths none of whose actions has an advantage."""
    busy = np.bincount(paths.path, paths.advantage != 0, minlength=len(paths.weight)) > 0
    number, mine = np.cumsum(busy) - 1, busy[paths.path]
    return Expanded(
        paths.index[mine], number[paths.path[mine]], paths.advantage[mine], paths.weight[busy], paths.leaf[busy],
        None if paths.share is None else paths.share[mine],
    )  # fmt: skip


def _shares(table: Table, optim: Optim) -> list[list[int]]:
    size = optim.minibatch_prompts
    count = optim.minibatches if size is None else -(-len(table.trees) // size)
    edges = np.linspace(0, len(table.trees), count + 1).round().astype(int)
    return [list(range(a, b)) for a, b in pairwise(edges) if b > a]
