"""Punish errors the policy has grown confident of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rolltree.credit.advantage import Advantage, Credit, CreditError
from rolltree.credit.entropy_shaping import leaf_only, per_leaf_mean
from rolltree.credit.outcome import action_values, outcomes
from rolltree.credit.registry import register, resolve
from rolltree.tree.table import Floats, Table


@register("ace", paper="ACE, arXiv:2602.21420", family="shaping")
@dataclass(frozen=True, slots=True)
class ACE:
    """A_i ← A_i (1 + α softplus(c_i)) on errors, c_i = log π(y_i) − log π_ref(y_i) (ACE).

    Reference log-probs stand in `notes["reference"]` per action. As published c is a SUM over the response, which
    explodes on long ones: `length="mean"` normalises, `cap` bounds the factor. Errors are leaves with a negative
    advantage, and with a reward below `correct` when that is given. Even at c = 0 the factor is 1 + α ln 2, which is
    why `uniform` gives it to every error: the control that shows what confidence adds. α = 0 is the base.
    """

    base: Credit | str = "grpo"
    alpha: float = 1.0
    """How strongly confident errors are punished more; 0 is the base credit."""
    length: Literal["sum", "mean"] = "sum"
    """Whether the confidence is summed over the answer, as published, or a mean of its tokens."""
    cap: float = 10.0
    """Largest factor of an error."""
    correct: float | None = None
    uniform: bool = False
    """Every error gets the factor of unchanged confidence."""

    @property
    def needs(self) -> frozenset[str]:
        """The base's, and log-probs under the policy and the reference, which the control does without."""
        return resolve(self.base).needs | (frozenset() if self.uniform else {"logp", "action:reference"})

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage with errors amplified."""
        if self.length not in ("sum", "mean"):
            raise CreditError(f'ace: length is {self.length!r}; choose "sum" or "mean"')
        advantage = resolve(self.base)(table)
        leaf = leaf_only("ace", advantage)
        shift = np.zeros(len(leaf)) if self.uniform else self._shift(table)
        wrong = leaf < 0 if self.correct is None else (leaf < 0) & (outcomes(table) < self.correct)
        factor = np.minimum(1 + self.alpha * np.logaddexp(0.0, shift), max(self.cap, 1.0))
        return replace(advantage, leaf=np.where(wrong & table.live, leaf * factor, leaf))

    def _shift(self, table: Table) -> Floats:
        shift = per_leaf_mean(table, action_values(table, "logp") - action_values(table, "reference"))
        return shift * table.loss_tokens if self.length == "sum" else shift
