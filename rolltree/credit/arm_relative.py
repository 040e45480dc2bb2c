"""Rollouts compared with those of their own arm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage
from rolltree.credit.normalise import Ddof, centred, scaled
from rolltree.credit.outcome import leaf_scores, outcomes
from rolltree.credit.registry import register
from rolltree.tree.table import Table


@register("arm_relative", paper="Adaptive pixel reasoning, arXiv:2510.01681", family="group")
@dataclass(frozen=True, slots=True)
class ArmRelative:
    """A_i = (r_i − mean) / std over the leaves of the prompt with the same `tool_mode`.

    Arms succeed at different rates because of what they were told; a mean over all of them would pay the free rollouts
    for what the forced ones could not do. That each arm has a mean of its own is reconstructed.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "leaf:tool_mode"})
    ddof: Ddof = 1
    eps: float = 1e-6

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        reward, mode = outcomes(table), leaf_scores(table, "tool_mode")
        keys = zip(table.leaf_tree.tolist(), mode.tolist(), table.live, strict=True)
        arm = partition.ids((tree, of) if live else None for tree, of, live in keys)
        return Advantage(
            leaf=scaled(centred(reward, arm, "mean"), reward, arm, "std", ddof=self.ddof, eps=self.eps)
        )  # fmt: skip
