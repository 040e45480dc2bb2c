"""A bonus for what was solved with a skill in sight."""

from __future__ import annotations

from dataclasses import dataclass

from rolltree.control.methods.arise import SKILLED
from rolltree.filter.groups import live_leaves
from rolltree.tree import Tree


@dataclass(frozen=True, slots=True)
class SkillBonus:
    """Adds `bonus` to the outcome of a leaf that was shown a skill and is right (ARISE, arXiv 2603.16060).

    What the verifier said stays in `outcome`. Idempotent.
    """

    bonus: float = 1.0
    correct: float = 0.5
    """A larger outcome is right."""

    def __call__(self, tree: Tree, limit: int) -> None:
        """Shape every live leaf; `limit` is not used."""
        for leaf in live_leaves(tree):
            said = leaf.scores.setdefault("outcome", leaf.scores["reward"])
            if leaf.scores.get(SKILLED, 0.0) > 0:
                leaf.scores["reward"] = said + self.bonus * (said > self.correct)
