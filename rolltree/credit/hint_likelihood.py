"""The likelihood of a shown hint beside the group's advantages (SEELE)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rolltree.credit.advantage import Advantage, Credit
from rolltree.credit.registry import register, resolve
from rolltree.tree.table import Table


@register("hint_likelihood", paper="SEELE, arXiv:2509.06923", family="shaping")
@dataclass(frozen=True, slots=True)
class HintLikelihood:
    """The base's advantages on what the policy wrote, and a constant γ on the actions of hints that train (SEELE).

    γ at ratio 1 is the gradient of γ log π(hint), a supervised term; what became of the rollout does not touch the
    hint. Hints that do not train stay out of it. γ = 0 leaves hints alone.
    """

    base: Credit | str = "dr_grpo"
    gamma: float = 0.001

    @property
    def needs(self) -> frozenset[str]:
        """The base's."""
        return resolve(self.base).needs

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage off the hints, γ on them."""
        advantage = resolve(self.base)(table)
        hint = np.fromiter(
            (n.role == "hint" and t for n, t in zip(table.nodes, table.trainable, strict=True)), np.bool_
        )
        if not hint.any():
            return advantage
        at = np.repeat(hint, table.length)
        factor = np.ones(table.actions) if advantage.factor is None else advantage.factor
        action = np.zeros(table.actions) if advantage.action is None else advantage.action
        return replace(advantage, factor=np.where(at, 0.0, factor), action=np.where(at, self.gamma, action))
