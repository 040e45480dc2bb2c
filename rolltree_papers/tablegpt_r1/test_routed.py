"""Judges by the kind of an item, and judges of habits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.errors import RolltreeError
from rolltree.generate.independent import Independent
from rolltree.generate.judge.protocol import Entry, Judge, at_once
from rolltree.generate.judge.routed import field_of, kind_of
from rolltree.generate.judged import judged_parts
from rolltree.generate.roles import is_side
from rolltree.generate.runner import grow
from rolltree.recipe.registry import load_recipe
from rolltree.task.protocol import Item, Split
from rolltree.testing.tiny import SpellTask
from rolltree.tree import Forest, Node, Tree
from rolltree_papers.tablegpt_r1 import Fresh, Sparing, StepsTaken
from tests.generate.judge.test_texts import PRINTABLE, said


@dataclass(frozen=True)
class Sorted(SpellTask):
    """The task with something written on every item."""

    told: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        return (replace(item, meta=self.told) for item in super().items(split, seed))


def grown(judge: str = "frozen", **told: Any) -> tuple[Tree, Forest]:
    """A tree with its rewards shaped, and all trees."""
    parts = load_recipe("tablegpt_r1", group=4, judge=judge).build()
    engine = TabularEngine(lambda _: [1 / len(PRINTABLE)] * len(PRINTABLE), Letters(PRINTABLE))
    task = Sorted(told=told)
    forest = asyncio.run(grow(parts.strategy, engine, task, islice(task.items("train"), 1), roles={"judge": engine}))
    (tree,) = [one for one in forest if not is_side(one)]
    for shaper in parts.shapers:
        shaper(tree, 10_000)
    return tree, forest


def test_what_rules_check_is_never_asked_of_a_judge() -> None:
    tree, forest = grown()
    assert list(forest) == [tree]
    for leaf in tree.leaves():
        assert leaf.scores["rules"] == leaf.scores["outcome"]
        assert leaf.scores["criteria"] == leaf.scores["steps"] == 0


def test_open_items_are_graded_by_their_own_criteria_and_the_rules_say_nothing() -> None:
    tree, forest = grown(kind="open", criteria=("a title", "two numbers"))
    assert len(forest) > 1
    for leaf in tree.leaves():
        assert leaf.scores["rules"] == 0
        assert 0 < leaf.scores["criteria"] < 1
        habits = 0.1 * sum(leaf.scores[name] for name in ("fresh", "calm", "no_plot"))
        assert leaf.scores["reward"] == pytest.approx(leaf.scores["criteria"] + habits)


def test_an_open_item_without_criteria_fails_and_is_no_bad_answer() -> None:
    tree, _ = grown(kind="open")
    assert not any("reward" in leaf.scores for leaf in tree.leaves() if leaf.status == "done")
    assert "criteria" in str(tree.notes.get("failed")) or all(leaf.status == "failed" for leaf in tree.leaves())


def test_kinds_stand_in_the_meta_or_in_the_row_or_follow_from_the_environment() -> None:
    bare = Item("i", "p", "a")
    assert kind_of(bare, interactive=False) == "verifiable"
    assert kind_of(bare, interactive=True) == "agentic"
    row = replace(bare, meta={"columns": {"kind": "open", "need_plot": True}})
    assert kind_of(row, interactive=True) == "open"
    assert field_of(row, "need_plot") is True
    assert field_of(bare, "need_plot") is None
    with pytest.raises(RolltreeError, match="open"):
        kind_of(replace(bare, meta={"kind": "opne"}), interactive=False)


def test_repetition_doubt_and_plots() -> None:
    assert said(Fresh(2), "a b c d", "a b a b a b", "a", "") == [1.0, 2 / 5, 1.0, 1.0]
    assert said(Sparing(("wait",), 2), "go", "Wait wait", "wait WAIT wait, wait") == [1.0, 1.0, 0.5]
    assert said(Sparing(("plt.",)), "x", "plt.show()") == [1.0, 0.0]


def test_plots_are_free_where_they_are_asked_for() -> None:
    drawn = Sparing(tuple(PRINTABLE), allowed="need_plot")  # every character is a plot
    for asked, worth in ((True, 1.0), (False, 0.0)):
        task = Sorted(told={"need_plot": asked})
        strategy = judged_parts(Independent(2), {"no_plot": drawn})
        engine = TabularEngine(lambda _: [1 / len(PRINTABLE)] * len(PRINTABLE), Letters(PRINTABLE))
        (tree,) = asyncio.run(grow(strategy, engine, task, islice(task.items("train"), 1)))
        assert {leaf.scores["no_plot"] for leaf in tree.leaves()} == {worth}


def walked(*steps: tuple[int, bool]) -> tuple[Tree, Node]:
    """A path of calls, each a number, with whether it failed."""
    tree = Tree("t", [0])
    node = tree.root
    for call, failed in steps:
        node = tree.extend(node, [call, call])
        node = tree.extend(node, [9], role="env", notes={"failed": True} if failed else {})
    return tree, tree.extend(node, [1], status="done")


@pytest.mark.parametrize(
    ("steps", "worth"),
    [
        ((), 0.0),
        (((1, False), (2, False)), 0.2),
        (((1, False), (1, False)), 0.0),
        (((1, True), (1, False)), -0.3),
        (tuple((n, False) for n in range(20)), 0.5),
        (((1, True),) * 9, -0.5),
    ],
)
def test_steps_earn_what_they_did_within_a_bound(steps: tuple[tuple[int, bool], ...], worth: float) -> None:
    judge: Judge = StepsTaken()
    tree, leaf = walked(*steps)
    (opinion,) = at_once(judge(None, [[Entry(tree, leaf)]], np.random.default_rng(0)), "test")  # type: ignore[arg-type]
    assert opinion is not None
    assert opinion[0] == pytest.approx(worth)
