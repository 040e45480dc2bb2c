"""Metrics of a step gathered over its micro-batches, and the train–inference mismatch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from rolltree.control.ledger import RESOURCES, Budget
from rolltree.control.ledger import Spent as BudgetSpent
from rolltree.credit.fold import Folded, Multiplicity, fold
from rolltree.credit.group import GRPO
from rolltree.generate.signals import log_entropy
from rolltree.knobs.varying import Told, schedule
from rolltree.metrics.policy import ess
from rolltree.policy.protocol import Policy
from rolltree.training.config import TrainConfig, TrainError
from rolltree.training.pack import Micro
from rolltree.tree.node import TRAINER_ENTROPY, TRAINER_LOGP
from rolltree.tree.table import Floats, Table

# How far a step's credit is from GRPO's on the same rollouts: whether a credit, a filter or a weight did anything.

ROUNDING = 1e-9
"""Below this the two are the same."""


def credit_apart(table: Table, folded: Folded, weights: Floats, multiplicity: Multiplicity) -> dict[str, float]:
    """1 − cosine of the advantages with GRPO's over the trained tokens, both under the same weights.

    0 where one is the other up to scale, 1 where GRPO has no signal. Not measured where nothing is taught or an outcome
    is missing.
    """
    mine = folded.gain + folded.loss
    if not mine.any() or not np.isfinite(table.score("reward")[table.leaf][table.live]).all():
        return {}
    plain = fold(table, GRPO()(table), weights, multiplicity)
    theirs = plain.gain + plain.loss
    size = float(np.linalg.norm(mine) * np.linalg.norm(theirs))
    apart = 1.0 - float(mine @ theirs) / size if size else 1.0
    return {"policy/credit_apart": apart if apart > ROUNDING else 0.0}


# How much the gradients of an update's prompts differ: what a larger batch would average away.
#
# Rollouts of one prompt are compared with one another and so are no independent samples; prompts are.


class GradientNoise:
    """Told after each prompt's backward pass; prompts without a gradient are counted and never seen."""

    def __init__(self, policy: Policy, prompts: int) -> None:
        self._parameters = [p for p in policy.parameters() if p.requires_grad]
        self._before = [torch.zeros_like(p) for p in self._parameters]
        self._prompts = prompts
        self._squares = 0.0

    def add(self) -> None:
        """What the gradients have grown by since the last call is one prompt's share of the update's gradient."""
        for p, before in zip(self._parameters, self._before, strict=True):
            if p.grad is not None:
                self._squares += float((p.grad - before).square().sum())
                before.copy_(p.grad)

    def numbers(self) -> dict[str, float]:
        """The variance of a prompt's gradient around their mean, summed over weights, and that over the mean's squared
        norm (the gradient noise scale, arXiv 1812.06162, eq. 2.9); nothing where there is no gradient, or one prompt.

        The update's gradient is the mean of the prompts' own, so a prompt's own is n times its share.
        """
        n, square = self._prompts, sum(float(b.square().sum()) for b in self._before)
        if n < 2 or square == 0:
            return {}
        variance = max((n * n * self._squares - n * square) / (n - 1), 0.0)
        return {"grad_variance": variance, "noise_scale": variance / square}


# What a run has used up, and where a step's time went.


@dataclass(slots=True)
class RunTotals:
    """What a run has used up, earlier parts of a resumed run included."""

    decoded: int = 0
    prefilled: int = 0
    env_steps: int = 0
    judge_calls: int = 0
    leaves: int = 0
    seconds: float = 0.0

    def add(self, budget: Budget, before: BudgetSpent | None = None) -> dict[str, float]:
        """Book what a step's budget spent, since `before` where it is not the step's own; returns it."""
        spent = budget.spent
        numbers = {n: getattr(spent, n) - (getattr(before, n) if before else 0) for n in RESOURCES}
        for name, value in numbers.items():
            setattr(self, name, getattr(self, name) + value)
        roles = {
            f"budget/role/{role}": float(tokens - (before.by_role.get(role, 0) if before else 0))
            for role, tokens in spent.by_role.items()
        }
        return {f"budget/{n}": float(v) for n, v in numbers.items()} | roles


class StepClock:
    """Laps of a step."""

    def __init__(self) -> None:
        self._at = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """Time since the last lap belongs to this name."""
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._at
        self._at = now


# What knobs that vary follow: numbers of the last step.

PIVOT = 0.8
"""Quantile of log-entropy between the actions taken for certain and for uncertain ones (HAPO, arXiv 2509.16591)."""


def followed(texts: Mapping[str, str], numbers: Told) -> dict[str, float]:
    """Those of a step's numbers that some schedule follows."""
    names = {name for text in texts.values() if (found := schedule(text)) is not None for name, _ in found.reads}
    return {name: numbers[name] for name in sorted(names & numbers.keys())}


def log_entropies(view: Table) -> dict[str, float]:
    """Where the log-entropies of a step's trained actions lie, as they were sampled; {} where none was recorded."""
    entropy = view.flat("entropy", np.nan)
    entropy = entropy[view.loss_mask & np.isfinite(entropy)]
    if not len(entropy):
        return {}
    e = log_entropy(entropy)
    return {"policy/log_entropy_pivot": float(np.quantile(e, PIVOT)), "policy/log_entropy_most": float(e.max()),
            "policy/log_entropy_least": float(e.min())}  # fmt: skip


class Gathered:
    """Weighted means of objectives' metrics; `…_max` are maxima, `kl_…` and `entropy_bonus` arrive as weighted sums."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._mass: dict[str, float] = {}
        self._tops: dict[str, float] = {}

    def add(self, metrics: Mapping[str, Tensor], weight: float, scale: float) -> None:
        """One micro-batch's metrics; `scale` is what its weights were multiplied with."""
        for name, value in metrics.items():
            number = float(value)
            if name.endswith("_max"):
                self._tops[name] = max(self._tops.get(name, -np.inf), number)
            else:
                summed = name.startswith("kl_") or name == "entropy_bonus"
                self._more(name, number / scale if summed else number * weight, weight)

    def add_one(self, name: str, value: float) -> None:
        """A number per update; the mean over updates is reported."""
        self._more(name, value, 1.0)

    def merge(self, other: Gathered) -> None:
        """Take in what another rank gathered of the same step."""
        for name, value in other._sums.items():
            self._more(name, value, other._mass[name])
        for name, value in other._tops.items():
            self._tops[name] = max(self._tops.get(name, -np.inf), value)

    def means(self) -> dict[str, float]:
        """What was gathered."""
        return {n: s / self._mass[n] if self._mass[n] else 0.0 for n, s in self._sums.items()} | self._tops

    def _more(self, name: str, value: float, mass: float) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + value
        self._mass[name] = self._mass.get(name, 0.0) + mass


class Watcher(Protocol):
    """Told what the policy says of every micro-batch under the weights at the start of the step."""

    def add(self, micro: Micro, logp: Tensor, entropy: Tensor | None = None) -> None:
        """One micro-batch, the log-probs of its targets and, where the step computes them, their entropies."""
        ...


class Mismatch:
    """How far the trainer's log-probs are from the engine's, over actions written by the weights in training.

    Two programs compute the same policy; kernels, batching and number types make them differ. A mismatch that grows
    turns on-policy training off-policy without anybody deciding it (arXiv 2510.26788).
    """

    def __init__(self, limit: float, version: int) -> None:
        self._limit, self._version = limit, version
        self._all: list[Floats] = []

    def add(self, micro: Micro, logp: Tensor, entropy: Tensor | None = None) -> None:
        """One micro-batch under the weights at the start of the step."""
        del entropy
        mine = (micro.version == self._version) & np.isfinite(micro.engine)
        self._all.append(np.abs(logp.cpu().double().numpy()[mine] - micro.engine[mine]))

    def means(self) -> dict[str, float]:
        """Mean, maximum and share beyond the limit; nothing where no action can be compared."""
        found = np.concatenate(self._all) if self._all else np.zeros(0)
        if not len(found):
            return {}
        return {
            "policy/mismatch": float(found.mean()),
            "policy/mismatch_max": float(found.max()),
            "policy/mismatch_over": float((found > self._limit).mean()),
        }


def check_mismatch(numbers: Mapping[str, float], config: TrainConfig) -> None:
    """Refuse to go on with an engine that does not write the policy in training (`mismatch_share`)."""
    share = numbers.get("policy/mismatch_over", 0.0)
    if share > config.mismatch_share:
        raise TrainError(
            f"the engine does not write the policy in training: under the same weights {share:.0%} of the actions "
            f"differ by more than mismatch_limit={config.mismatch_limit} in log-prob "
            f"({numbers['policy/mismatch']:.2g} on average); "
            "let both use one model, tokenizer and precision, let the engine report log-probs at temperature 1, or "
            f"allow it with a mismatch_share above {config.mismatch_share}"
        )


class Reread:
    """What the trainer's own forward says of each action before the step, for the nodes to keep beside the engine's."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._read = {name: np.full(table.actions, np.nan) for name in (TRAINER_LOGP, TRAINER_ENTROPY)}

    def add(self, micro: Micro, logp: Tensor, entropy: Tensor | None = None) -> None:
        """One micro-batch under the weights at the start of the step; entropies are those of its first update."""
        self._read[TRAINER_LOGP][micro.packed.action] = logp.cpu().double().numpy()
        if entropy is not None:
            self._read[TRAINER_ENTROPY][micro.packed.action] = entropy.cpu().double().numpy()

    def write(self) -> None:
        """Note it on every node of which the trainer read some action."""
        t = self._table
        for node, start, length in zip(t.nodes, t.start.tolist(), t.length.tolist(), strict=True):
            for name, read in self._read.items():
                mine = read[start : start + length]
                if np.isfinite(mine).any():
                    node.notes[name] = [None if np.isnan(x) else round(x, 6) for x in mine.tolist()]


class ImportanceWeights:
    """Importance weights of whole rollouts: the policy at the start of the step over the sampling distribution.

    Products along paths, over the actions that were trained on and have a sampling probability.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._log = np.zeros(table.actions)
        self._known = np.zeros(table.actions)

    def add(self, micro: Micro, logp: Tensor, entropy: Tensor | None = None) -> None:
        """One micro-batch under the weights at the start of the step."""
        del entropy
        known = np.isfinite(micro.sampled)
        at = micro.packed.action[known]
        self._log[at] = logp.cpu().double().numpy()[known] - micro.sampled[known]
        self._known[at] = 1.0

    def means(self) -> dict[str, float]:
        """Effective share of the rollouts; nothing where no action has a weight."""
        seen = self._along(self._known) > 0
        return {"policy/ess": ess(self._along(self._log)[seen])} if seen.any() else {}

    def _along(self, values: Floats) -> Floats:
        t = self._table
        sums = np.append(0.0, np.cumsum(values))
        return t.down(sums[t.start + t.length] - sums[t.start])[t.leaf]
