"""A score for every call of a tool, read off what the environment said to it."""

from __future__ import annotations

from dataclasses import dataclass

from rolltree.tree import Node, Tree


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


def _turn_before(tree: Tree, answer: Node) -> list[Node]:
    """The policy's runs between the word before and this answer."""
    turn: list[Node] = []
    for node in reversed(tree.path(answer)[:-1]):
        if node.role in ("env", "prompt"):
            break
        if node.role == "policy":
            turn.append(node)
    return turn
