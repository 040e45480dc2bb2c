"""Metrics of a step gathered over its micro-batches, and the train–inference mismatch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from torch import Tensor

from rolltree.metrics.policy import ess
from rolltree.train.config import TrainConfig, TrainError
from rolltree.train.pack import Micro
from rolltree.tree.node import TRAINER_ENTROPY, TRAINER_LOGP
from rolltree.tree.table import Floats, Table


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
