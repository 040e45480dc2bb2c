"""Rewards for how a query was worked out: ReEx-SQL's five parts (arXiv 2505.12768)."""

from __future__ import annotations

from dataclasses import dataclass

from rolltree.errors import RolltreeError
from rolltree.filter.groups import live_leaves
from rolltree.tree import Node, Tree


class PartError(RolltreeError, LookupError):
    """A part of a reward that the task does not measure; names it and the way out."""


@dataclass(frozen=True, slots=True)
class Executed:
    """The outcome becomes the weighted mean of five parts between 0 and 1.

    `format`: the policy ended the episode by itself. `execution`: the verifier's word. `exact` and `entities`: parts
    that the task measures (`sql` does). `exploration` (reconstructed): of the calls made on the way, the share that
    worked and brought something new, and 0 without the format. A result seen before on the path pays nothing, so
    repeating an easy call lowers the share. The paper's maxima are 2, 3, 1, 1 and 2.
    """

    format: float = 2.0
    execution: float = 3.0
    exact: float = 1.0
    entities: float = 1.0
    exploration: float = 2.0

    @property
    def needs(self) -> frozenset[str]:
        """The parts that weigh something."""
        return frozenset(f"part:{name}" for name, weight in self._measured if weight)

    def __call__(self, tree: Tree, limit: int) -> None:
        """Shape every live leaf, with each part on record; idempotent. `limit` is not used."""
        for leaf in live_leaves(tree):
            outcome = leaf.scores.setdefault("outcome", leaf.scores["reward"])
            ended = float(leaf.role == "env" and leaf.finish == "stop")
            explored = ended * self._novel(tree, leaf)
            leaf.scores["format"], leaf.scores["exploration"] = ended, explored
            parts = ((self.format, ended), (self.execution, outcome), (self.exploration, explored))
            parts += tuple((weight, self._part(tree, leaf, name)) for name, weight in self._measured if weight)
            leaf.scores["reward"] = sum(w * value for w, value in parts) / sum(w for w, _ in parts)

    @property
    def _measured(self) -> tuple[tuple[str, float], ...]:
        return ("exact", self.exact), ("entities", self.entities)

    def _novel(self, tree: Tree, leaf: Node) -> float:
        """Share of the calls before the last word that worked and gave a result not seen before on the path."""
        seen: set[bytes] = set()
        calls = [n for n in tree.path(leaf) if n.role == "env" and n is not leaf]
        for call in calls:
            if not call.notes.get("failed"):
                seen.add(call.actions.tobytes())
        return len(seen) / len(calls) if calls else 0.0

    def _part(self, tree: Tree, leaf: Node, name: str) -> float:
        if name not in leaf.scores:
            raise PartError(
                f"leaf {leaf.id} of tree {tree.id!r} has no part {name!r}: the task {tree.task!r} does not measure it; "
                f"set {name}=0, or choose sql"
            )
        return leaf.scores[name]
