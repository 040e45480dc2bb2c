"""A chain of roles: who sees what, what is judged, and what its gain is due to."""

from __future__ import annotations

import asyncio
from itertools import islice

import pytest

from rolltree.control.ledger import Budget
from rolltree.generate.runner import grow
from rolltree_papers.myantfarm import Stage, Staged
from rolltree_papers.myantfarm.study import LETTERS, Incident, quality, voted, writer


def test_every_role_sees_those_before_it_and_the_answer_is_judged_by_itself() -> None:
    stages = (Stage("diagnoser", "A?"), Stage("planner", "{said}B?"), Stage("assessor", "{said}C?"))
    task, budget = Incident(), Budget()
    forest = asyncio.run(
        grow(Staged(stages, 2, stage_tokens=4), writer(1.0), task, islice(task.items("test"), 5), seed=1, budget=budget)
    )
    sides = [tree for tree in forest if "/" in tree.id]
    assert {tree.notes["role"] for tree in sides} == {"diagnoser", "planner", "assessor"}
    for tree in sides:
        said = LETTERS.decode(tree.root.actions)
        assert said.endswith({"diagnoser": "A?", "planner": "B?", "assessor": "C?"}[tree.notes["role"]])
        assert tree.notes["role"] == "diagnoser" or "a" in said or "!" in said
    for tree in (t for t in forest if "/" not in t.id):
        for leaf in tree.leaves():
            own = LETTERS.decode(leaf.actions)
            assert leaf.scores["reward"] == pytest.approx(
                sum(w for part, w in (("a", 0.4), ("b", 0.3), ("c", 0.3)) if part in own)
            )
    assert set(budget.spent.by_role) == {"diagnoser", "planner", "assessor"}


def test_where_asking_for_all_at_once_costs_nothing_the_chain_gains_nothing() -> None:
    alone, all_, chain = (quality(arm, 1.0, 0, 200)[0] for arm in ("one role", "one role, asked for all", "chain"))
    assert alone < 0.2
    assert chain < all_ + 0.05
    assert quality("chain", 0.7, 0, 200)[0] > quality("one role, asked for all", 0.7, 0, 200)[0] + 0.2


def test_the_vote_costs_no_more_tokens_than_the_chain_and_asks_no_other_role() -> None:
    tokens = quality("chain", 0.9, 0, 20)[1]
    assert quality("one role, asked for all", 0.9, 0, 20)[1] < voted(0.9, 0, tokens, 20)[1] <= tokens
    account = Budget()
    quality("one role, asked for all", 0.9, 0, 5, account, answers=3)
    assert not account.spent.by_role
