"""What the environment said to a call of a tool, as a score of the turn that called, or as a mask of its loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rolltree.tree import Node, Tree
from rolltree.tree.views import policy_turns


@dataclass(frozen=True, slots=True)
class CallFormat:
    """Score `format` of each turn that was answered: `worked`, or 0 where the environment said that the call failed.

    Outcomes stay as they are; a credit that compares steps adds this one to what a step led to.
    """

    worked: float = 0.1

    def __call__(self, tree: Tree, limit: int) -> None:
        """Score the runs of every answered turn; `limit` is not used."""
        for answer in tree:
            if answer.role == "env":
                for node in _turn_before(tree, answer):
                    node.scores["format"] = 0.0 if answer.notes.get("failed") else self.worked


@dataclass(frozen=True, slots=True)
class FailedCalls:
    """Leaves every turn that the environment answered with a failure out of the loss; it stays in the context.

    So what comes after a failure (the recovery) is learned, and the failure itself is not. Idempotent.
    """

    def __call__(self, tree: Tree, limit: int) -> None:
        """Mask the runs of every failed turn; `limit` is not used."""
        for answer in tree:
            if answer.role == "env" and answer.notes.get("failed"):
                for node in _turn_before(tree, answer):
                    node.keep = np.zeros(len(node), np.bool_)


def _turn_before(tree: Tree, answer: Node) -> list[Node]:
    """The policy's runs between the word before and this answer."""
    return policy_turns(tree.path(answer)[:-1])[-1]
