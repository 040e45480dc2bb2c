"""Two leaves side by side: what they share, where they part, and what each became."""

from __future__ import annotations

from dataclasses import dataclass

from rolltree.view.outline import Outline


@dataclass(frozen=True)
class Parting:
    """Rows of two paths: the shared part from the root, and what only each has."""

    shared: tuple[int, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]

    @property
    def fork(self) -> int:
        """Row of the last node both share."""
        return self.shared[-1]


def parting(tree: Outline, left: int, right: int) -> Parting:
    """Where the paths to two rows part; one may lie on the other's path."""
    a, b = tree.path(left), tree.path(right)
    common = 0
    while common < min(len(a), len(b)) and a[common] == b[common]:
        common += 1
    return Parting(tuple(a[:common]), tuple(a[common:]), tuple(b[common:]))


def other_leaf(tree: Outline, row: int) -> int | None:
    """A leaf to compare a leaf with: the best-rewarded one that is not it, else the nearest; None where it is alone."""
    rewards = tree.rewards
    leaves = [r for r in range(len(tree)) if tree.is_leaf[r] and r != row]
    if not leaves:
        return None
    mine = rewards[row]

    def differs(r: int) -> tuple[bool, float, int]:
        far = abs(rewards[r] - mine)
        return (not far > 0, -far if far > 0 else 0.0, -len(parting(tree, row, r).shared))

    return min(leaves[:2000], key=differs)
