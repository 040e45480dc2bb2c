"""Searches over steps: when they end, and what they hand over."""

from __future__ import annotations

import asyncio
from itertools import islice

import pytest

from rolltree.generate.choose import choice
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.recipe.registry import load_recipe
from rolltree.task.protocol import Task
from rolltree.testing.tiny import SpellTask, Walk, tiny_engine
from rolltree.tree import Forest


def grown(strategy: TreeStrategy, task: Task, items: int = 6) -> Forest:
    return asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("train"), items), seed=1))


def searched(*, stop: bool, worth: str, rollouts: int, workers: int = 1) -> Forest:
    knobs = {"turns": 12, "ways": 2, "step": 2, "delimiter": "", "rollouts": rollouts, "final": "best"}
    recipe = load_recipe("mcts", stop=stop, worth=worth, workers=workers, **knobs)
    return grown(recipe.build().strategy, SpellTask())


def decoded(forest: Forest) -> int:
    return sum(len(node) for tree in forest for node in tree if node.role == "policy")


@pytest.mark.parametrize(("rollouts", "workers"), [(0, 1), (1, 1), (1, 3)])
def test_a_search_ends_at_an_answer_that_the_verifier_calls_right_and_hands_it_over(rollouts: int, workers: int):
    ended, on = (searched(stop=s, worth="verifier", rollouts=rollouts, workers=workers) for s in (True, False))
    assert decoded(ended) < decoded(on)
    for short, whole in zip(ended, on, strict=True):
        right = [leaf for leaf in short.leaves() if leaf.scores.get("reward") == 1]
        assert bool(right) == any(leaf.scores.get("reward") == 1 for leaf in whole.leaves())
        if right:
            made = choice(short)
            assert made.leaf is not None
            assert made.leaf.scores["reward"] == 1


def test_without_the_verifier_it_goes_on_whatever_the_answers_are() -> None:
    ended, on = (searched(stop=s, worth="path", rollouts=1) for s in (True, False))
    assert decoded(ended) == decoded(on)


def test_an_episode_that_the_environment_ends_is_finished_and_can_be_chosen() -> None:
    for tree in grown(Independent(6), Walk()):
        ends = [leaf for leaf in tree.leaves() if "reward" in leaf.scores]
        assert any(leaf.role == "env" for leaf in ends)
        made = choice(tree)
        assert list(made.finished) == ends
        assert made.leaf in ends
        counts = {answer: sum(leaf.notes["answer"] == answer for leaf in ends) for answer in ("2", "6", made.answer)}
        assert counts[made.answer] == max(counts.values())
