"""The small worlds behind the evidence of credit and objective recipes: what they are made of; seeds decide."""

from __future__ import annotations

import numpy as np
import pytest

from rolltree.generate.independent import Independent
from rolltree.tree import Tree
from studies.exact import modes, play, votes
from studies.exact.checks import noise
from studies.exact.problem import solve
from studies.exact.problems import PROBLEMS


def test_more_rollouts_are_less_noisy_and_make_more_calls() -> None:
    (few, used), (many, more) = noise("rloo", 2, "flat", 0), noise("rloo", 8, "flat", 0)
    assert many < few
    assert more > 3 * used


def test_a_played_problem_has_the_problems_distribution() -> None:
    """What independent rollouts earn is what enumeration says, and rows are those the actions were drawn from."""
    problem = PROBLEMS["tools"]()
    trees = play.grown(problem, Independent(4), seed=3, trees=150)
    earned = np.array([leaf.scores["reward"] for tree in trees for leaf in tree.leaves()])
    truth = solve(problem).objective
    assert earned.mean() == pytest.approx(truth, abs=4 * np.sqrt(truth * (1 - truth) / len(earned)))
    for tree in trees[:10]:
        for node in tree:
            if node.trainable:
                assert np.exp(node.logp[0]) == pytest.approx(  # type: ignore[index]
                    problem.policy[int(node.notes["row"][0]), node.actions[0]], rel=1e-4
                )


def test_a_fixed_cost_is_told_to_calls_and_to_thought_alone() -> None:
    tree = Tree("t", [0])
    for mode in (0.0, 1.0):
        tree.extend(0, [1], status="done", scores={"reward": 1.0, "mode": mode})
    called = tree.extend(tree.extend(0, [1], status="done"), [2], role="env", status="done")
    tree.extend(called, [3], status="done", scores={"reward": 1.0})
    modes.Cost()(tree, 48)
    assert [leaf.scores["reward"] for leaf in tree.leaves()] == pytest.approx([1.0, 0.8, 0.8])


def test_labels_that_say_nothing_cost_as_many_rollouts_and_are_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(votes, "STEPS", 2)
    runs = [votes.trained(0, voted=voted) for voted in (True, False)]
    assert runs[0][1] == runs[1][1] == 2 * votes.VOTES
    assert runs[0][0] != runs[1][0]
    tree = Tree("t", [0])
    for answer in "aabc":
        tree.extend(0, [1], status="done", scores={"reward": 0.0}, notes={"answer": answer})
    votes.AnyAnswer(np.random.default_rng(0))(tree, 1)
    assert len({leaf.notes["answer"] for leaf in tree.leaves() if leaf.scores["reward"]}) == 1
