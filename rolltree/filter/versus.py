"""Verdicts of a judge that compares two answers: every leaf against one member of its group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rolltree.filter.groups import live_leaves
from rolltree.generate.judge.against import against
from rolltree.generate.judge.measured import MeasuredJudge
from rolltree.generate.judge.protocol import Entry, Judge, at_once
from rolltree.generate.random import mix
from rolltree.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class Versus:
    """Writes `versus` on every live leaf, the share of votes it won against one of them, and `reference` = 1 on that
    one, drawn anew for every group (bootstrapped relative policy optimisation, arXiv 2506.00103).

    The paper's judge is a generative reward model that reads both answers in both orders. Here the judge reads what is
    recorded: a part of the verdict, through the errors it is given. `rolltree.generate.judged.JudgedAgainst` asks an
    engine instead. An equal answer has not won.
    """

    judge: Judge = field(default_factory=MeasuredJudge)
    votes: int = 1
    """Votes in each of the two orders."""
    seed: int = 0
    writes: ClassVar[frozenset[str]] = frozenset({"judged:versus"})

    def __call__(self, tree: Tree, limit: int) -> None:
        """Judge the live leaves of one tree; `limit` is not used."""
        leaves = live_leaves(tree)
        if not leaves:
            return
        rng = drawn(self.seed, tree, leaves)
        chosen = int(rng.integers(len(leaves)))
        group = [Entry(tree, leaf) for leaf in leaves]
        won = at_once(against(None, self.judge, group, chosen, self.votes, rng), f"the judge {self.judge.name!r}")
        for i, leaf in enumerate(leaves):
            leaf.scores.update(versus=float(won[i]), reference=float(i == chosen))
        share = float(won[np.arange(len(leaves)) != chosen].mean()) if len(leaves) > 1 else 0.0
        tree.event("note", leaves[chosen], "the answer the others were compared with", judge=self.judge.name, won=share)


def drawn(seed: int, tree: Tree, leaves: list[Node]) -> np.random.Generator:
    """The draw belongs to this very group: another visit of the prompt has another reference."""
    return np.random.default_rng(mix(seed, tree.id, *(leaf.actions.tobytes().hex() for leaf in leaves)))
