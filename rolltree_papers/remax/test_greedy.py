"""One greedy rollout beside the sampled ones."""

from __future__ import annotations

import asyncio
from itertools import islice

import numpy as np

from rolltree.control.ledger import Budget, Limits
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.testing.strategy import check_strategy
from rolltree.testing.tiny import SpellTask, tiny_engine
from rolltree.tree import Forest
from rolltree.tree.table import table
from rolltree_papers.remax import WithGreedy


def grown(budget: Budget | None = None) -> Forest:
    task = SpellTask()
    strategy = WithGreedy(Independent(3))
    return asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("train"), 4), seed=1, budget=budget))


def test_the_greedy_outcome_is_the_baseline_and_the_greedy_rollout_does_not_teach() -> None:
    for tree in grown():
        [greedy] = [leaf for leaf in tree.leaves() if leaf.usage]
        assert greedy.usage == "dropped: the greedy baseline"
        assert np.isnan(greedy.sampling_logprob).all()
        assert tree.root.scores["greedy_reward"] == greedy.scores["reward"]
        view = table([tree])
        got = load_credit("remax")(view).leaf
        assert got is not None
        sampled = [leaf.scores["reward"] for leaf in tree.leaves() if not leaf.usage]
        assert len(sampled) == 3
        np.testing.assert_allclose(got[view.live], np.array(sampled) - greedy.scores["reward"])


def test_without_a_greedy_rollout_nothing_is_compared() -> None:
    trees = [t for t in grown(Budget(Limits(decoded=3))) if "greedy_reward" not in t.root.scores]
    assert trees
    assert all(leaf.usage or leaf.status != "done" or leaf.parent is None for t in trees for leaf in t.leaves())


def test_it_keeps_the_contract_of_strategies() -> None:
    check_strategy(WithGreedy(Independent(3)))
