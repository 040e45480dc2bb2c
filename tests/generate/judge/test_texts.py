"""Judges of form, several judges on the same leaves, and the recipes that weigh what they say."""

from __future__ import annotations

import asyncio
import string
from itertools import islice

import numpy as np
import pytest

from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.filter.parts import weighed
from rolltree.filter.shaping import REBUTTAL, REPLY, RewardError
from rolltree.generate.independent import Independent
from rolltree.generate.judge.protocol import Entry, Judge, at_once
from rolltree.generate.roles import is_side
from rolltree.generate.runner import grow
from rolltree.recipe.registry import load_recipe
from rolltree.testing.forests import flat
from rolltree.testing.tiny import SpellTask

PRINTABLE = string.printable
"""What judges are asked in."""


def said(judge: Judge, *texts: str) -> list[float]:
    tree = flat([1.0])
    questions = [[Entry(tree, tree.leaves()[0], text)] for text in texts]
    opinions = at_once(judge(None, questions, np.random.default_rng(0)), "test")  # type: ignore[arg-type]
    return [opinion[0] for opinion in opinions if opinion is not None]


def test_weights_leave_parts_out_and_gates_shut() -> None:
    assert [p.name for p in weighed(REPLY, {"fluency": 0.0}).parts] == [
        "politeness", "refutation", "evidence", "relevance",
    ]  # fmt: skip
    gated = weighed(REBUTTAL, {}, {"diversity": "format"})
    ones = {part.name: 1.0 for part in gated.parts}
    assert gated.verdict({**ones, "format": 0.0}).score == 2.0
    assert REBUTTAL.verdict({**ones, "format": 0.0}).score == 3.0
    with pytest.raises(RewardError, match="'wit' is weighed"):
        weighed(REPLY, {"wit": 1.0})
    with pytest.raises(RewardError, match="weighs -1"):
        weighed(REPLY, {"fluency": -1.0})
    with pytest.raises(RewardError, match="no part"):
        weighed(REPLY, {part.name: 0.0 for part in REPLY.parts})


@pytest.mark.papers("misinfo_correct", "rebuttal_agent", "slideforge")
@pytest.mark.parametrize(
    ("name", "knobs", "parts"),
    [
        ("misinfo_correct", {}, {"politeness", "refutation", "evidence", "fluency", "relevance"}),
        ("rebuttal_agent", {"templates": ("abc",)}, {"format", "thinking", "response", "diversity"}),
        ("rebuttal_agent", {}, {"format", "thinking", "response", "diversity"}),
        ("rebuttal_agent", {"templates": ()}, {"format", "thinking", "response"}),
        ("slideforge", {"rules": 0.0, "render": 0.0, "look_png": 0.0}, {"brief", "content", "look_html"}),
    ],
)
def test_a_frozen_copy_measures_every_part_that_the_reward_weighs(name: str, knobs: dict[str, float], parts: set[str]):
    recipe = load_recipe(name, group=2, **knobs).build()
    assert not recipe.peers["judge"].trained
    task = SpellTask()
    engine = TabularEngine(lambda _: [1 / len(PRINTABLE)] * len(PRINTABLE), Letters(PRINTABLE))
    forest = asyncio.run(grow(recipe.strategy, engine, task, islice(task.items("train"), 1), roles={"judge": engine}))
    (tree,) = [tree for tree in forest if not is_side(tree)]
    for shaper in recipe.shapers:
        shaper(tree, 16)
    for leaf in tree.leaves():
        graded = parts & leaf.scores.keys()
        assert graded == parts
        assert all(0 <= leaf.scores[part] <= 1 for part in parts)
        assert "outcome" in leaf.scores


@pytest.mark.papers("misinfo_correct", "rebuttal_agent", "slideforge")
@pytest.mark.parametrize("name", ["misinfo_correct", "rebuttal_agent", "slideforge"])
def test_with_a_verifier_nothing_is_asked(name: str) -> None:
    parts = load_recipe(name, judge="verifier").build()
    assert parts.peers == {}
    assert parts.strategy == Independent(8)
    assert len(parts.shapers) == 1
