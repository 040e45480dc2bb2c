"""Which rollout of a tree is handed over: what the strategy chose, or the most frequent answer where it chose none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rolltree.generate.judge.measured import answer_of, tally
from rolltree.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen among the finished rollouts of a tree."""

    answer: str | None
    """In normal form; None = no rollout gave one."""
    leaf: Node | None
    """The most valued rollout with that answer; of all, where none gave an answer."""
    how: Literal["method", "majority"]
    finished: Sequence[Node]
    """Ends of rollouts, by the policy's word or the environment's, and inner nodes that are answers too."""
    voters: Sequence[Node]
    """Rollouts that gave an answer."""
    mine: Sequence[Node]
    """Those that gave the chosen one."""


def choice(tree: Tree) -> Choice:
    """The choice of a tree that was grown."""
    # Whoever wrote last: where the environment ends an episode, the outcome stands on its word.
    finished = [n for n in tree if n.status == "done" and n.role != "prompt" and ("reward" in n.scores or n.is_leaf)]
    voters = [n for n in finished if answer_of(n) is not None]
    said, how = tree.notes.get("answer"), "method"
    if said is None and voters:
        shares = tally(tree, voters, "leaf")
        said, how = max(shares, key=lambda a: shares[a]), "majority"
    mine = [n for n in voters if answer_of(n) == said]
    best = max(mine or finished, key=lambda n: n.scores.get("value", 0.0), default=None)
    return Choice(None if said is None else str(said), best, how, finished, voters, mine)
