"""The answer from which the question is found again, held against a majority, with exact policies."""

from __future__ import annotations

import numpy as np

from rolltree.compare.frozen import counted
from rolltree.control.ledger import Budget
from rolltree.engine.tabular import TabularEngine
from rolltree.generate.independent import Independent
from rolltree.recipe.registry import load_recipe
from rolltree.tree import Tree
from rolltree_papers.st_raptor import BestJudged
from studies.lab.claim import Measured as Found
from studies.roles import ASK, LETTERS, grown, reader, right


def backwards(knows: float = 0.8, fits: int = 1) -> TabularEngine:
    """A policy that answers as `reader` does, and after an answer names one of the `fits` questions it may belong to
    with `knows`: with 2, a and b belong to both of their questions, and so do c and d, and so on.
    """
    first = reader()

    def row(prefix: tuple[int, ...]) -> list[float]:
        if ASK in prefix:
            return [float(np.exp(x)) for x in first.row(prefix)]
        out = [0.0] * len(LETTERS.alphabet)
        if len(prefix) < 3:
            said = prefix[0] // fits if prefix else -1
            for letter in range(8):
                mine, other = knows / fits, (1 - knows) / (8 - fits)
                out[letter] = (mine if letter // fits == said else other) if knows > 1 / 8 else 1 / 8
        else:
            out[ASK] = 1.0
        return out

    return TabularEngine(row, LETTERS)


def st_raptor(seed: int) -> Found:
    """The answer from which the question is found again, of eight, against the majority of sixteen: a reading is a call
    as an attempt is. An answer leads back to two questions, so that a wrong one may score as well as the right one.
    """
    account, policy = Budget(), backwards(fits=2)
    strategy = load_recipe("st_raptor", ask="{text}").build().strategy
    assert isinstance(strategy, BestJudged)
    forest = grown(strategy, seed, items=200, engine=policy, account=account)
    votes = grown(Independent(2 * strategy.n), seed, items=200, engine=policy)
    return Found(right(forest), float(np.mean([_majority(tree) for tree in votes])),
                 acted=counted("st_raptor", forest, account))  # fmt: skip


def _majority(tree: Tree) -> bool:
    said = [leaf.notes["answer"] for leaf in tree.leaves()]
    return max(said, key=said.count) == tree.notes["expected"]
