"""Trees of attempts: who answers where, by which policy, and what a repeated question changes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

from rolltree.control.ledger import Limits
from rolltree.credit.registry import load_credit
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.runner import grow
from rolltree.generate.strategy import NeedsError
from rolltree.testing.tiny import SpellTask, Walk, tiny_engine
from rolltree.tree import Tree
from rolltree.tree.table import table
from rolltree_papers.mars2 import Attempts, Prior, attempts
from rolltree_papers.mars2.study import generation_by_score
from studies.searches import drafter, grown, mender


def trees(strategy: Attempts, n: int = 4, **settings: Any) -> list[Tree]:
    task = SpellTask()
    return list(asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("train"), n), seed=2, **settings)))


def test_every_attempt_is_a_rollout_of_its_own() -> None:
    """Its text, its verdict and its limit leave out what stands above, and the engine saw all of it."""
    for tree in trees(Attempts(8)):
        scored = [n for n in tree if "reward" in n.scores]
        assert len(scored) == 8
        deep = [n for n in scored if sum(m.role == "prompt" for m in tree.path(n)) > 1]
        for node in deep:
            asked = tree[node.parent]  # type: ignore[index]
            assert asked.role == "prompt"
            assert not asked.trainable
            assert np.array_equal(asked.actions, tree.root.actions)
            assert len(node) <= SpellTask().max_tokens
            early = node.actions[0] < 12 if len(node) else False
            assert node.scores["reward"] == float(early), "judged by its own first letter"
    assert any(sum(m.role == "prompt" for m in t.path(n)) > 2 for t in trees(Attempts(8)) for n in t)


def test_each_actor_writes_with_its_own_policy() -> None:
    codec = Letters("ab!")
    mine, theirs = (TabularEngine(lambda p, i=i: [1 - i, i, 0.0] if len(p) < 6 else [0, 0, 1], codec) for i in (0, 1))

    class Any_(SpellTask):
        def items(self, split, seed=0):  # type: ignore[no-untyped-def]
            return (replace(item, prompt="ab") for item in super().items(split, seed))

    task = Any_(max_tokens=3, stop=("!",))
    forest = asyncio.run(grow(Attempts(6, choose="wide"), mine, task, islice(task.items("train"), 2),
                              peers={"peer": theirs}))  # fmt: skip
    written = {(n.actor, int(n.actions[0])) for _, n in forest.nodes() if n.role == "policy"}
    assert written == {("policy", 0), ("peer", 1)}


def test_peers_with_other_tokens_are_refused() -> None:
    other = TabularEngine(lambda _: [0.5, 0.5], Letters("ab"))
    with pytest.raises(Exception, match="choose models that share a tokenizer"):
        trees(Attempts(2), peers={"peer": other})


def test_environments_are_refused() -> None:
    with pytest.raises(NeedsError, match="'tiny-walk' has an environment"):
        asyncio.run(grow(Attempts(2), tiny_engine(), Walk(), islice(Walk().items("train"), 1)))


def test_a_budget_that_ends_leaves_no_question_without_an_answer() -> None:
    for decoded in (5, 20, 33):
        for tree in trees(Attempts(8), per_prompt=Limits(decoded=decoded)):
            assert all(leaf.role == "policy" for leaf in tree.leaves() if leaf.parent is not None)


def test_better_scores_move_the_search_from_new_drafts_to_mending() -> None:
    share = generation_by_score(grown(Attempts(12), 0, 40, drafter(), peer=mender()))
    assert share[0] == 1.0
    assert np.mean([share[i] for i in (9, 10, 11)]) < np.mean([share[i] for i in (1, 2, 3)])


def test_draws_follow_the_posterior() -> None:
    """Normal-inverse-gamma: the mean of μ is the shrunken mean, and more scores make it narrower."""
    rng = np.random.default_rng(0)
    few = np.array([Prior().draw([1.0, 0.5], rng) for _ in range(4000)])
    many = np.array([Prior().draw([1.0, 0.5] * 20, rng) for _ in range(4000)])
    assert np.median(few) == pytest.approx(1.5 / 3, abs=0.03)
    assert np.median(many) == pytest.approx(30 / 41, abs=0.01)
    assert np.diff(np.quantile(many, [0.1, 0.9])) < 0.5 * np.diff(np.quantile(few, [0.1, 0.9]))
    beta = np.array([Prior("beta").draw([1.0, 0.5], rng) for _ in range(4000)])
    assert beta.mean() == pytest.approx(2.0 / 3, abs=0.02)


def test_all_attempts_of_a_tree_are_one_group_and_shaping_prefers_improvement() -> None:
    view = table(list(grown(Attempts(8), 1, 10, drafter(), peer=mender())))
    rows, _ = attempts(view)
    assert len(rows) == 80
    plain = load_credit("sibling_shaping", gamma=0.0)(view).node
    assert plain is not None
    for tree in range(10):
        mine = rows[view.tree[rows] == tree]
        assert plain[mine].mean() == pytest.approx(0.0, abs=1e-9)
