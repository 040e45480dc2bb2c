"""Recipes of horizons, arms, swarms and skills: each must fail here where its mechanism does not act."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np
import pytest

from rolltree.control.arms import FORBIDDEN, FORCED, FREE, MODE, THOUGHT, ToolModes
from rolltree.control.history import History
from rolltree.control.horizon import Horizon
from rolltree.control.order import ControlError, Delivery
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
from rolltree.testing.tiny import SpellTask, Walk
from rolltree.tree import Tree
from rolltree.tree.table import table
from rolltree_papers.dart import Dart, UncertainTurns
from rolltree_papers.swarm import Swarm
from studies.prompts.world import PromptWorld, run
from tests.rollout.flying import fly

NAMES = ("sage_skills", "adadagrad", "ppo_million", "tti", "dart", "swarm", "a2fm", "adaptive_pixel")


@pytest.mark.parametrize("name", NAMES)
def test_what_each_counts_is_a_metric(name: str) -> None:
    counter = load_recipe(name).card.counter
    assert counter is not None
    assert metric_of(counter.metric)


# -- TTI ---------------------------------------------------------------------------------------------------------------


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


def test_a_horizon_ends_rollouts_and_an_evaluation_has_none() -> None:
    flown = fly(preset("sync"), task=Walk(), control=Horizon(1), strategy=Independent(4))
    leaves = [leaf for g in flown.groups for leaf in g.item.tree.leaves()]
    assert {leaf.finish for leaf in leaves} <= {"depth", "eos", "length"}
    assert any(leaf.finish == "depth" for leaf in leaves)
    with pytest.raises(ControlError, match="turns=-1 is below 0"):
        Horizon(-1)
    with pytest.raises(RecipeError, match="lets no environment answer"):
        load_recipe("tti", horizon=0).build()


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


def test_dart_gives_fewer_rollouts_to_what_is_solved() -> None:
    control = Dart(0.6)
    assert [control.width(p, 8) for p in (None, 0.0, 0.3, 0.59, 0.6, 0.75, 0.9, 1.0)] == [8, 8, 8, 8, 8, 5, 3, 2]
    assert Dart(0.6, least=4).width(1.0, 8) == 4
    with pytest.raises(ControlError, match="threshold=0"):
        Dart(0.0)


def test_dart_rescues_only_what_was_solved_before_and_by_the_newest_success() -> None:
    control, state, history = Dart(), Dart().start(), History()
    world = PromptWorld(logits=np.array([9.0, -40.0]), drift=0.0, gain=0.0)
    run(control, world, 1, prompts=2, width=4, state=state, history=history)
    assert list(state.newest) == ["p0"]
    world.logits[0] = -40.0  # forgotten
    (log,) = run(control, world, 1, prompts=2, width=4, state=state, history=history, first=2)
    rescues = [d.order for d in log.delivered if d.order.arm == "rescue"]
    assert [(o.prompt.uid, o.given, o.replaces) for o in rescues] == [("p0", (state.newest["p0"],), 1)]


def test_darts_horizon_is_that_of_the_longest_success() -> None:
    told: list[Delivery] = []

    class Watched(Dart):
        def plan(self, step: Any, state: Any) -> Any:
            plan, answer = Dart.plan(self, step, state), None
            while True:
                try:
                    orders = next(plan) if answer is None else plan.send(answer)
                except StopIteration:
                    return
                answer = yield orders
                told.extend(answer)

    class Few(Walk):
        def items(self, split: Any, seed: int = 0) -> Any:
            known = [next(Walk.items(self, split, seed)) for _ in range(1)]
            while True:
                yield from known

    fly(preset("sync"), task=Few(), control=Watched(), strategy=Independent(6))
    first = [d for d in told if d.order.arm == "plain"]
    longest = 0
    for d in first:
        assert d.order.turns is None or d.order.turns <= 6
        longest = max([longest, *(t for t, r in zip(d.turns, d.rewards, strict=True) if r > 0)])
    assert first[-1].order.turns == longest


def test_only_uncertain_turns_are_trained_and_a_rescue_stays_whole() -> None:
    tree = Tree("t", [0], task="t", item="i")
    for base in (0.1, 0.6):
        here = tree.root
        for more in (0.0, 0.1, 0.2):
            doubt = np.full(2, base + more, np.float32)
            here = tree.extend(here, [1, 2], logp=np.zeros(2, np.float32), entropy=doubt, status="done")
            here = tree.extend(here, [3], role="env", status="done")
        here.scores["reward"] = base
    given = tree.extend(tree.root, [4], logp=np.zeros(1, np.float32), forced=True, status="done")
    given.scores["reward"] = 1.0
    UncertainTurns(0.5)(tree, 48)
    kept = [n.keep is None for n in tree if n.role == "policy"]
    assert kept == [False, False, False, True, True, True, True]
    few = Tree("t", [0], task="t", item="i")
    lost = few.extend(few.root, [1], entropy=np.ones(1, np.float32), status="done", scores={"reward": 0.0})
    few.extend(few.root, [4], forced=True, status="done", scores={"reward": 1.0})
    UncertainTurns(0.8)(few, 48)
    assert lost.keep is None, "a rescue is no turn that others are less uncertain than"
    bare = Tree("t", [0], task="t", item="i")
    bare.extend(bare.root, [1], status="done", scores={"reward": 1.0})
    with pytest.raises(RolltreeError, match="ask for 'entropy'"):
        UncertainTurns()(bare, 48)


# -- swarm -------------------------------------------------------------------------------------------------------------


def test_nodes_train_on_what_others_published_judged_here(tmp_path: Path) -> None:
    folder = str(tmp_path / "swarm")
    fly(preset("sync"), task=SpellTask(), control=Swarm(folder, "a"), updates=2)
    lines = [json.loads(line) for line in (tmp_path / "swarm" / "a.swarm.jsonl").read_text().splitlines()]
    assert lines
    assert not {"reward", "rewards", "logp"} & set(lines[0]), "only questions and texts are published"
    other = fly(preset("sync"), task=SpellTask(), control=Swarm(folder, "b", foreign=0.7), updates=1)
    trained = [g.item.tree for g in other.trained[0]]
    foreign = [t for t in trained if t.item.endswith("@a")]
    assert foreign
    for tree in foreign:
        for leaf in tree.leaves():
            said = "".join("abcdefghijklmnopqrstuvwxy!"[i] for i in leaf.actions if i < 26)
            assert leaf.forced
            assert leaf.notes["arm"] == "foreign"
            assert leaf.scores["reward"] == float(said[:1] in "abcdefghijkl"), "the local verifier's word"
            assert leaf.logp is not None
            assert np.isfinite(leaf.logp).all()
            assert leaf.sampling_logprob is not None
            assert np.isnan(leaf.sampling_logprob).all()
    alone = fly(preset("sync"), task=SpellTask(), control=Swarm(str(tmp_path / "empty"), "c"), updates=1)
    assert not [g for g in alone.trained[0] if "@" in g.item.tree.item], "with nobody there all groups are its own"


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


def test_a_broken_publication_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.swarm.jsonl").write_text("not json\n")
    with pytest.raises(ControlError, match=r"x\.swarm\.jsonl holds a line"):
        Swarm(str(tmp_path), "me")._published()  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(ControlError, match="names no file"):
        Swarm(str(tmp_path), "a/b")


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
