"""Recipes of horizons, arms, swarms and skills: each must fail here where its mechanism does not act."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, cast

import numpy as np
import pytest

from rolltree.control.arms import FORBIDDEN, FORCED, FREE, MODE, THOUGHT, ToolModes
from rolltree.control.horizon import Horizon
from rolltree.control.order import ControlError
from rolltree.control.schedule import preset
from rolltree.credit.fold import fold, leaf_weights
from rolltree.errors import RolltreeError
from rolltree.filter.modes import Adaptive, Necessity, calls
from rolltree.generate.independent import Independent
from rolltree.metrics.registry import metric_of
from rolltree.recipe.compose import compose
from rolltree.recipe.recipe import RecipeError
from rolltree.recipe.registry import load_recipe
from rolltree.replay.buffer import Recall, ReplayBuffer, RolloutBatch, recent
from rolltree.task.items import TaskError
from rolltree.task.nano.expert import play
from rolltree.task.registry import load_task
from rolltree.testing.tiny import Walk
from rolltree.tree import Tree
from rolltree.tree.table import table
from tests.rollout.flying import fly

NAMES = ("sage_skills", "adadagrad", "ppo_million", "tti", "dart", "swarm", "a2fm", "adaptive_pixel")


@pytest.mark.papers("a2fm", "adadagrad", "adaptive_pixel", "dart", "ppo_million", "sage_skills", "swarm", "tti")
@pytest.mark.parametrize("name", NAMES)
def test_what_each_counts_is_a_metric(name: str) -> None:
    counter = load_recipe(name).card.counter
    assert counter is not None
    assert metric_of(counter.metric)


# -- TTI ---------------------------------------------------------------------------------------------------------------


@pytest.mark.papers("tti")
def test_tti_lengthens_the_horizon_and_clones_successes_alone() -> None:
    recipe = load_recipe("tti")
    turns = [compose(recipe, step).control.turns for step in (0, 1, 2, 3, 50)]  # pyright: ignore
    assert turns == [10, 20, 20, 30, 30]
    parts = recipe.build()
    tree = Tree("t", [0], task="t", item="web-1")
    for reward in (1.0, 0.0):
        tree.extend(tree.root, [1], logp=np.zeros(1, np.float32), status="done", scores={"reward": reward})
    rows = table([tree])
    folded = fold(rows, parts.credit(rows), leaf_weights(rows, "sequence"))
    assert folded.gain[rows.start[1]] > 0
    assert not folded.gain[rows.start[2]]
    assert not folded.loss.any(), "nothing pushes a failure down"


@pytest.mark.papers("tti")
def test_a_horizon_ends_rollouts_and_an_evaluation_has_none() -> None:
    flown = fly(preset("sync"), task=Walk(), control=Horizon(1), strategy=Independent(4))
    leaves = [leaf for g in flown.groups for leaf in g.item.tree.leaves()]
    assert {leaf.finish for leaf in leaves} <= {"depth", "eos", "length"}
    assert any(leaf.finish == "depth" for leaf in leaves)
    with pytest.raises(ControlError, match="turns=-1 is below 0"):
        Horizon(-1)
    with pytest.raises(RecipeError, match="lets no environment answer"):
        load_recipe("tti", horizon=0).build()


@pytest.mark.papers("grpo_roc")
def test_a_horizon_in_tokens_bounds_what_the_policy_writes_and_may_grow() -> None:
    recipe = load_recipe("grpo_roc", tokens="2, 3 at 1")
    longest: list[int] = []
    for step in (0, 1):
        control: Any = compose(recipe, step).control
        flown = fly(preset("sync"), control=control, strategy=Independent(8))
        leaves = [leaf for g in flown.groups for leaf in g.item.tree.leaves()]
        longest.append(max(len(leaf) for leaf in leaves))
        assert any(leaf.finish == "length" for leaf in leaves)
    assert longest == [2, 3]
    assert isinstance(load_recipe("grpo_roc").build().control, Horizon)


def test_successes_are_drawn_by_lateness_and_by_the_rarity_of_their_domain() -> None:
    def one(i: int, domain: str, reward: float) -> Tree:
        tree = Tree(f"{domain}{i}", [0], task="t", item=f"{domain}-{i}")
        tree.extend(tree.root, [1], status="done", scores={"reward": reward})
        return tree

    rule, past = Recall(0.5, 100, "recent", solved=True), ReplayBuffer()
    past.remember(RolloutBatch([one(0, "rare", 1.0), one(1, "web", 1.0), one(2, "web", 0.0), one(3, "web", 1.0)]), rule)
    assert [t.id for t in past.trees] == ["rare0", "web1", "web3"], "failures have nothing to imitate"
    # Lateness 1, 2, 3 of 6; rarity 1, 1/2, 1/2 of 2.
    chances = recent(past.trees)
    assert chances is not None
    np.testing.assert_allclose(chances, np.array([1 / 6 + 1 / 2, 2 / 6 + 1 / 4, 3 / 6 + 1 / 4]) / 2)
    drawn = [past.draw(1, seed, "recent")[0].id for seed in range(600)]
    assert drawn.count("web3") / 600 == pytest.approx(0.375, abs=0.07)
    assert len({t.id for t in past.draw(3, 0, "recent")}) == 3, "without repetition"
    assert past.draw(0, 0, "recent") == []
    assert ReplayBuffer().draw(0, 0, "recent") == []


# -- DART --------------------------------------------------------------------------------------------------------------


# -- swarm -------------------------------------------------------------------------------------------------------------


@pytest.mark.papers("swarm")
def test_foreign_groups_without_variance_stay_out_of_the_batch() -> None:
    (foreign,) = load_recipe("swarm").build().filters

    def group(arm: str, *rewards: float) -> Tree:
        tree = Tree("t", [0], task="t", item="i")
        for reward in rewards:
            tree.extend(tree.root, [1], status="done", scores={"reward": reward}, notes={"arm": arm} if arm else {})
        return tree

    assert foreign(group("foreign", 1.0, 1.0)) == "all outcomes are 1"
    assert foreign(group("foreign", 1.0, 0.0)) is None
    assert foreign(group("", 1.0, 1.0)) is None, "own ones stay, as published"


# -- arms --------------------------------------------------------------------------------------------------------------


def armed(*leaves: tuple[float, bool, float]) -> Tree:
    """A group of (mode, whether a tool was called, outcome)."""
    tree = Tree("t", [0], task="t", item="i")
    for mode, called, reward in leaves:
        here = tree.extend(tree.root, [1], logp=np.zeros(1, np.float32), status="done")
        if called:
            here = tree.extend(here, [2], role="env", status="done")
            here = tree.extend(here, [3], logp=np.zeros(1, np.float32), status="done")
        here.scores |= {"reward": reward, MODE: mode}
        here.finish = "stop"
    return tree


def rewards(tree: Tree) -> list[float]:
    return [round(leaf.scores["reward"], 6) for leaf in tree.leaves()]


def test_a_tool_that_was_not_needed_earns_less_and_a_wrong_answer_nothing() -> None:
    told = [(FORCED, True, 1.0), (FORBIDDEN, False, 1.0), (FORBIDDEN, False, 0.0)]
    tree = armed(*told, (FREE, True, 1.0), (FREE, False, 1.0), (FREE, True, 0.0))
    for _ in range(2):  # idempotent
        Adaptive(2.0)(tree, 48)
    assert rewards(tree) == [1.0, 1.0, 0.0, 0.75, 1.0, 0.0]
    assert [leaf.scores["outcome"] for leaf in tree.leaves()] == [1.0, 1.0, 0.0, 1.0, 1.0, 0.0]


def test_a_mode_is_what_a_tagged_rollout_says_and_keeps() -> None:
    told = [(FORBIDDEN, False, 1.0), (FORBIDDEN, False, 0.0), (THOUGHT, False, 1.0), (FORCED, True, 1.0)]
    said = {0: False, 1: False, 2: True, -1: False, 0.5: True}
    tree = armed(*told, *((FREE, called, 1.0) for called in said.values()))
    for leaf, mode in zip(tree.leaves()[4:], said, strict=True):
        leaf.scores["mode"] = float(mode)
    Adaptive(2.0, tagged=True)(tree, 48)
    # At once in full, thought and tools by 1 − p², no mode nothing, a call in a mode without tools nothing.
    assert rewards(tree) == [1.0, 0.0, 1.0, 1.0, 1.0, 0.75, 0.75, 0.0, 0.0]
    with pytest.raises(RolltreeError, match="tagged:NAME"):
        Adaptive(tagged=True)(armed(*told, (FREE, False, 1.0)), 48)


def test_tags_begin_the_forced_arms_and_are_no_part_of_what_is_judged() -> None:
    task = load_task("tagged:calculator")
    item = next(iter(task.items("train")))
    played = asyncio.run(play(cast(Any, task), item, Random(0)))
    assert played.turns[0][1].startswith("<agentic>")
    right = asyncio.run(task.verify(item, played.state, played.text))
    assert (right.score, right.parts["mode"]) == (1.0, 2.0)
    for begun, mode in (("<instant>", 0.0), ("<reasoning>", 1.0), ("", -1.0)):
        plain = asyncio.run(task.verify(item, task.start(item)[0], f"{begun}={item.answer}"))
        assert (plain.score, plain.parts["mode"]) == (1.0, mode)
    with pytest.raises(TaskError, match="three different"):
        load_task("tagged:calculator", tags=("a", "a", "b"))
    flown = fly(preset("sync"), task=Walk(), control=ToolModes(2, 2, 3, tags=("a", "b", "c")), strategy=Independent(3),
                updates=1)  # fmt: skip
    for group in flown.trained[0]:
        tree = group.item.tree
        modes = [leaf.scores[MODE] for leaf in tree.leaves()]
        assert {mode: modes.count(mode) for mode in modes} == {FREE: 3, FORCED: 2, FORBIDDEN: 2, THOUGHT: 2}
        hints = [n for n in tree if n.role == "hint"]
        assert sorted(chr(97 + int(n.actions[0])) for n in hints) == ["a", "b", "c"]
        assert not any(n.trainable for n in hints)


@pytest.mark.parametrize(
    ("with_tools", "without", "best", "worst"),
    [(1.0, 0.0, (True, 1.0), (False, 0.0)), (0.0, 1.0, (False, 1.0), (True, 0.0)), (1.0, 1.0, (False, 1.0), None)],
)
def test_need_orders_the_free_arm(with_tools: float, without: float, best: Any, worst: Any) -> None:
    free = [(used, right) for used in (True, False) for right in (0.0, 1.0)]
    tree = armed((FORCED, True, with_tools), (FORBIDDEN, False, without), *((FREE, u, r) for u, r in free))
    Necessity()(tree, 48)
    earned = dict(zip(free, rewards(tree)[2:], strict=True))
    assert max(earned, key=earned.__getitem__) == best
    if worst is not None:
        assert min(earned, key=earned.__getitem__) == worst
    assert tree.root.scores["tools_help"] == np.sign(with_tools - without)


@pytest.mark.papers("adaptive_pixel")
def test_forced_arms_are_paid_for_obeying_and_compared_among_themselves() -> None:
    tree = armed((FORCED, True, 0.0), (FORCED, False, 0.0), (FORBIDDEN, False, 1.0), (FORBIDDEN, False, 1.0),
                 (FREE, True, 1.0), (FREE, False, 0.0))  # fmt: skip
    Necessity(obey=0.2)(tree, 48)
    assert rewards(tree)[:4] == [0.2, 0.0, 1.2, 1.2]
    value = load_recipe("adaptive_pixel").build().credit(table([tree])).leaf
    assert value is not None
    assert value[0] > 0 > value[1]
    assert not value[2:4].any(), "an arm in which all earn the same teaches nothing, however well it does"
    with pytest.raises(RolltreeError, match="tool_modes"):
        Adaptive()(armed((7.0, True, 1.0)), 48)


def test_arms_are_told_their_mode_and_the_one_without_tools_has_no_environment() -> None:
    control = ToolModes(2, 2, 3, use="use", avoid="dont", answering=0)
    flown = fly(preset("sync"), task=Walk(), control=control, strategy=Independent(3), updates=1)
    for group in flown.trained[0]:
        tree = group.item.tree
        arms: dict[float, list[Any]] = {}
        for leaf in tree.leaves():
            arms.setdefault(leaf.scores[MODE], []).append(leaf)
        assert {mode: len(of) for mode, of in arms.items()} == {FREE: 3, FORCED: 2, FORBIDDEN: 2}
        assert not any(calls(tree, leaf) for leaf in arms[FORBIDDEN])
        assert any(calls(tree, leaf) for leaf in arms[FREE])
        hints = {n.id for n in tree if n.role == "hint"}
        assert len(hints) == 2
        assert all(not tree[i].trainable for i in hints)
        assert all(hints & {n.id for n in tree.path(leaf)} for leaf in arms[FORCED] + arms[FORBIDDEN])
        assert not any(hints & {n.id for n in tree.path(leaf)} for leaf in arms[FREE])
