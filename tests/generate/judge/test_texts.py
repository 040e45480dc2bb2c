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
from rolltree.generate.judge.measured import MeasuredJudge
from rolltree.generate.judge.protocol import Entry, Judge, JudgeError, at_once
from rolltree.generate.judged import judged_parts
from rolltree.generate.roles import is_side
from rolltree.generate.runner import grow
from rolltree.recipe.registry import load_recipe
from rolltree.testing.forests import flat
from rolltree.testing.tiny import SpellTask, tiny_engine
from rolltree_papers.rebuttal_agent import Blocks, Unlike, Within

PRINTABLE = string.printable
"""What judges are asked in."""


def said(judge: Judge, *texts: str) -> list[float]:
    tree = flat([1.0])
    questions = [[Entry(tree, tree.leaves()[0], text)] for text in texts]
    opinions = at_once(judge(None, questions, np.random.default_rng(0)), "test")  # type: ignore[arg-type]
    return [opinion[0] for opinion in opinions if opinion is not None]


def test_blocks_stand_once_in_order_and_alone() -> None:
    judge = Blocks(("A", "B"))
    right = "<A>x</A>\n<B>y</B>"
    assert said(judge, right, f" {right}\n") == [1.0, 1.0]
    wrong = "<B>y</B><A>x</A>", right + right, right + " more", "<A> </A><B>y</B>", "<A>x</A>", ""
    assert said(judge, *wrong) == [0.0] * len(wrong)


def test_a_missing_block_is_an_abstention_and_distance_is_from_the_nearest() -> None:
    far = Unlike(("thank you", "we will"))
    assert said(far, "we will") == [0.0]
    assert said(far, "xxxx") == [1.0]
    inner = said(Within("B", far), "<A>zzz</A><B>thank you</B>", "thank you", "<B>qq</B>")
    assert inner[0] == 0.0
    assert np.isnan(inner[1])
    assert inner[2] == 1.0
    with pytest.raises(JudgeError, match="asks an engine"):
        said(Unlike(("{prompt}",)), "x")
    with pytest.raises(JudgeError, match="at least one text"):
        Unlike(())


def test_judges_write_scores_of_their_own() -> None:
    task = SpellTask()
    judges: dict[str, Judge] = {"same": MeasuredJudge("reward"), "blocks": Blocks(("A",))}
    forest = asyncio.run(
        grow(judged_parts(Independent(4), judges), tiny_engine(), task, islice(task.items("train"), 2))
    )
    leaves = [leaf for tree in forest for leaf in tree.leaves()]
    assert [leaf.scores["same"] for leaf in leaves] == [leaf.scores["reward"] for leaf in leaves]
    assert {leaf.scores["blocks"] for leaf in leaves} == {0.0}
    assert not any("judge" in leaf.scores for leaf in leaves)


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


@pytest.mark.parametrize("name", ["misinfo_correct", "rebuttal_agent", "slideforge"])
def test_with_a_verifier_nothing_is_asked(name: str) -> None:
    parts = load_recipe(name, judge="verifier").build()
    assert parts.peers == {}
    assert parts.strategy == Independent(8)
    assert len(parts.shapers) == 1
