"""A group filter for the groups of one arm of the control alone."""

from __future__ import annotations

from dataclasses import dataclass

from rolltree.filter.groups import GroupFilter
from rolltree.tree import Tree


@dataclass(frozen=True, slots=True)
class OfArm:
    """Asks `inner` about groups that have rollouts of `arm`, and keeps the others."""

    arm: str
    inner: GroupFilter

    def __call__(self, tree: Tree) -> str | None:
        """The inner filter's reason, where it is asked."""
        return self.inner(tree) if any(leaf.notes.get("arm") == self.arm for leaf in tree.leaves()) else None
