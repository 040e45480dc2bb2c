"""Which turns of a group are trained on, by how uncertain the policy was in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.errors import RolltreeError
from rolltree.filter.groups import live_leaves
from rolltree.tree import Node, Tree
from rolltree.tree.views import policy_turns


@dataclass(frozen=True, slots=True)
class UncertainTurns:
    """Keeps the turns whose mean entropy is at or above the group's quantile `1 − share`; the others stay as context.

    A turn is what the policy says between two words of the environment. Turns whose entropies were not recorded are an
    error: they must not look like certain ones. Idempotent (DART, arXiv 2509.23866).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"entropy"})
    share: float = 0.8

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise RolltreeError(f"turns of a share={self.share} cannot be kept; give a share above 0, at most 1")

    def __call__(self, tree: Tree, limit: int) -> None:
        """Mask the certain turns of live leaves; `limit` is not used."""
        turns: dict[int, list[Node]] = {}
        for leaf in live_leaves(tree):
            for turn in policy_turns(tree.path(leaf)):
                if written := [node for node in turn if len(node)]:
                    turns[written[0].id] = written
        if not turns:
            return
        doubt = {first: _entropy(tree, turn) for first, turn in turns.items()}
        known = [value for value in doubt.values() if np.isfinite(value)]
        if not known:
            return
        least = float(np.quantile(known, 1 - self.share))
        for first, turn in turns.items():
            if doubt[first] < least:
                for node in turn:
                    node.keep = np.zeros(len(node), np.bool_)


def _entropy(tree: Tree, turn: list[Node]) -> float:
    known = [node.entropy for node in turn if node.entropy is not None]
    values = np.concatenate(known) if known else np.zeros(0)
    values = values[np.isfinite(values)]
    if not len(values):
        if all(node.forced for node in turn):
            return float("inf")  # nobody sampled it: what was written elsewhere stays whole
        raise RolltreeError(
            f"turn {turn[0].id} of tree {tree.id!r} has no entropies to choose by; let the strategy ask for 'entropy'"
        )
    return float(values.mean())
