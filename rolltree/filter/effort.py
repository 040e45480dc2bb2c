"""A right answer counts if it is no longer than the effort asked for allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.filter.groups import live_leaves
from rolltree.filter.lengths import written
from rolltree.filter.rewards import RewardError
from rolltree.tree import Tree


@dataclass(frozen=True, slots=True)
class WithinEffort:
    """An outcome counts only if the leaf is no longer than r × the group's mean length, with r the root's score
    `effort` (e1, arXiv 2510.27042).

    All leaves of a tree must be asked at one r. The mean is measured anew each time: relative pressure, in which
    everybody can shrink together while staying right. Cut-off leaves pull the mean down. What the verifier said stays
    in `outcome`. Idempotent.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"root:effort"})
    over: Literal["all", "correct"] = "all"
    """Whose mean length counts: all rollouts of the group, or the right ones."""
    floor: float = 1.0
    """Least mean length, in tokens: keeps it from shrinking to nothing."""
    correct: float = 0.5
    """A larger outcome is right."""

    def __call__(self, tree: Tree, limit: int) -> None:
        """Shape every live leaf; `limit` is not used."""
        effort = tree.root.scores.get("effort")
        if effort is None:
            raise RewardError(
                f"tree {tree.id!r} says no effort; take a control that asks for one (`--control e1`), which writes it "
                "on the root"
            )
        leaves = live_leaves(tree)
        lengths = [written(tree, leaf) for leaf in leaves]
        said = [leaf.scores.setdefault("outcome", leaf.scores["reward"]) for leaf in leaves]
        among = [
            length for length, outcome in zip(lengths, said, strict=True)
            if self.over == "all" or outcome > self.correct
        ]  # fmt: skip
        mean = max(sum(among) / len(among) if among else 0.0, self.floor)
        for leaf, length, outcome in zip(leaves, lengths, said, strict=True):
            leaf.scores["reward"] = outcome if length <= effort * mean else 0.0
