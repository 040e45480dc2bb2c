"""ACE: asymmetric confidence-aware error penalty (arXiv 2602.21420)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from rolltree.credit.advantage import Advantage, Credit, CreditError
from rolltree.credit.entropy_shaping import leaf_only, per_leaf_mean
from rolltree.credit.outcome import action_values, outcomes
from rolltree.credit.registry import load_credit, register, resolve
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree.table import Floats, Table

# Punish errors the policy has grown confident of.


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


@dataclass(frozen=True, slots=True)
class Ace:
    """Errors the policy has grown confident of, against the initial policy, are pushed down harder.

    The factor of an error is 1 + α softplus(log π − log π_ref of the response), which is already 1 + α ln 2 where
    nothing changed; on long responses take `length="mean"`, the sum explodes. The claim is about pass@k: what survives
    beside the favourite answer. In the bandit of its card the right answers that survived were not more numerous.
    """

    card: ClassVar[Card] = Card(
        "ace", "Asymmetric confidence-aware error penalty", "2602.21420", 2026,
        "pass@32 on MATH-500 3 points above GRPO (Qwen2.5-Math-7B)", ("credit",), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:fresh", seeds=6),
        counter=Counter("policy/credit_apart"),
    )  # fmt: skip
    group: int = 8
    alpha: float = 1.0
    """How strongly an error is pushed down the more confident the policy has grown of it."""
    length: Literal["sum", "mean"] = "sum"
    """Whether the log-ratio of a response is the sum over its tokens or their mean."""
    cap: float = 10.0
    """Largest factor."""
    uniform: bool = False
    """The control: every error is amplified by the factor of unchanged confidence, whatever the policy thinks of it."""
    clip: float = 0.2
    kl: float = 0.0

    def build(self) -> Parts:
        """Independent rollouts, group credit with confident errors amplified, clipped surrogate."""
        check_group("ace", self.group)
        return Parts(
            "ace", Independent(self.group),
            load_credit("ace", alpha=self.alpha, length=self.length, cap=self.cap, uniform=self.uniform),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="sequence",
        )  # fmt: skip
