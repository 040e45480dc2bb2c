"""What makes a recipe the method of its paper, where a plausible substitute would pass every other test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest

from rolltree.engine.tabular import TabularEngine
from rolltree.filter.vote import MajorityVote, WeighedVote
from rolltree.generate.runner import grow
from rolltree.metrics.reward import parts
from rolltree.metrics.rollouts import Rollouts
from rolltree.recipe.recipe import Parts
from rolltree.recipe.registry import load_recipe
from rolltree.recipe.treepo import repeats
from rolltree.testing.tiny import CODEC, STOP, SpellTask, Walk, tiny_engine
from rolltree.tree import Tree
from rolltree.tree.table import table
from studies.lab.claim import claim_of


def grown(parts: Parts, task: Any, n: int = 4, policy: Callable[..., list[float]] | None = None) -> list[Tree]:
    engine = tiny_engine() if policy is None else TabularEngine(policy, CODEC)
    return list(asyncio.run(grow(parts.strategy, engine, task, islice(task.items("train"), n), seed=1)))


def uncertain_first(prefix: tuple[int, ...]) -> list[float]:
    """A first turn of twenty uniform letters, then turns of one certain letter."""
    row = np.zeros(27)
    turns, since = prefix.count(STOP), len(prefix) - 2 if STOP not in prefix else 0
    if turns == 0:
        row[STOP if since >= 20 else slice(0, 25)] = 1.0
    else:
        row[STOP if prefix[-1] == 13 and prefix[-2] != STOP else 13] = 1.0
    return list(row / row.sum())


@pytest.mark.papers("aepo")
def test_aepo_splits_the_leaves_by_sums_over_the_heads_of_turns() -> None:
    """Means per token made it start 8 or 9 of 16 at the root whatever the prompt."""
    parts = load_recipe("aepo", top=5).build()
    for tree in grown(parts, Walk(max_tokens=48), policy=uncertain_first):
        told = next(e.numbers for e in tree.events if e.kind == "allocate")
        # Twenty tokens with five of 25 equal alternatives each: −Σ p ln p = 5/25 · ln 25 over ln 27.
        assert told["at_root"] == pytest.approx(20 * 0.2 * np.log(25) / np.log(27), rel=1e-4)
        assert told["at_tools"] < 0.51 * told["at_root"]
        assert told["starts"] >= 12


@pytest.mark.papers("portool")
def test_portool_opens_its_leaves_at_the_prompt_and_pays_for_calls_that_worked() -> None:
    parts = load_recipe("portool", leaves=6).build()
    trees = grown(parts, Walk())
    for tree in trees:
        assert len(tree.children(tree.root)) == 6
        for shape in parts.shapers:
            shape(tree, 48)
    inner = [n for tree in trees for n in tree if n.role == "policy" and n.children]
    assert len(inner) > 20
    assert {n.scores["format"] for n in inner} == {0.1}
    # A call that failed is worth less than its siblings that worked, with the same outcome below.
    tree = Tree("t", [0], task="t", item="i")
    for failed in (False, True):
        call = tree.extend(tree.root, [1, 2], logp=np.zeros(2, np.float32), status="done")
        answer = tree.extend(call, [3], role="env", status="done", finish="stop", scores={"reward": 1.0})
        answer.notes["failed"] = failed
    parts.shapers[0](tree, 48)
    node = parts.credit(table([tree])).node
    assert node is not None
    assert node[1] == pytest.approx(-node[3])
    assert node[1] > 0.5


def test_areal_takes_four_updates_so_that_its_clip_can_act() -> None:
    recipe = load_recipe("areal")
    assert recipe.build().optim == {"minibatches": 4}
    assert [dict(arm.knobs)["optim.minibatches"] for arm in claim_of("areal").sides()] == [4, 4], "both arms alike"


@pytest.mark.papers("echo")
def test_echo_watches_what_it_restarts() -> None:
    parts = load_recipe("echo", leaves=6, stems=2, entropy=0.87, confidence=0.45, rise=0.0).build()
    for tree in grown(parts, SpellTask(stop=(), max_tokens=40), n=6):
        restarts = [n for n in tree.walk() if n.birth == "restart"]
        assert all(len(n) <= 4 for n in restarts)


def judged(votes: list[tuple[str, float, float | None]]) -> Tree:
    """Leaves with an answer, an outcome and the posterior seen in flight."""
    tree = Tree("t", [0])
    for answer, reward, posterior in votes:
        scores = {"reward": reward} | ({} if posterior is None else {"posterior": posterior})
        tree.extend(tree.root, [1], status="done", scores=scores, notes={"answer": answer})
    return tree


@pytest.mark.papers("arrol")
def test_arrols_vote_weighs_rollouts_by_their_chance_of_being_right() -> None:
    votes = [("a", 0.0, 0.1), ("a", 0.0, 0.1), ("a", 0.0, 0.2), ("b", 1.0, 0.9), ("b", 1.0, None)]
    tree = judged(votes)
    load_recipe("arrol").build().shapers[0](tree, 8)
    assert isinstance(load_recipe("arrol").build().shapers[0], WeighedVote)
    said = tree.events[-1].numbers
    assert (said["frequent"], said["heavy"]) == (0.0, 1.0)
    told = parts(Rollouts(table([tree])))
    assert (told["reward/part/vote_frequent"], told["reward/part/vote_heavy"]) == (0.0, 1.0)
    assert [leaf.scores["reward"] for leaf in tree.leaves()] == [0, 0, 0, 1, 1], "it changes nothing"
    for weigh, right in (("leaf", "a"), ("posterior", "b")):
        MajorityVote(weigh=weigh)(tree := judged(votes), 8)  # type: ignore[arg-type]
        assert {leaf.notes["answer"] for leaf in tree.leaves() if leaf.scores["reward"]} == {right}


@pytest.mark.papers("rorecomp")
def test_rorecomp_teaches_what_was_left_aside_in_order_of_age() -> None:
    parts = load_recipe("rorecomp").build()
    assert parts.recall is not None
    assert (parts.recall.order, parts.recall.share) == ("age", 0.3)
    assert parts.recall.window > 1
    assert load_recipe("rorecomp", compensate=0.0).build().recall is None


@pytest.mark.papers("metaagent_x")
def test_a_design_whose_executions_break_is_worth_less() -> None:
    """One success of two executions that stand against one of four: dropped failures made both 0.5."""
    tree = Tree("t", [0])
    for failures in (0, 2):
        design = tree.extend(tree.root, [1, 2], level=1, status="done")
        for reward in (1.0, 0.0):
            tree.extend(design, [3], status="done", scores={"reward": reward})
        for _ in range(failures):
            tree.extend(design, [3], status="failed")
    credit = load_recipe("metaagent_x", within="design").build().credit
    action = credit(table([tree])).action
    assert action is not None
    first, second = (action[table([tree]).start[i]] for i in (1, 4))
    assert first == pytest.approx(-second)
    assert first > 0.5


@pytest.mark.papers("metaagent_x")
def test_a_design_of_which_no_execution_stands_is_what_the_others_are_compared_with() -> None:
    """Two designs that always work and one that never runs: left out, the two had nothing to learn from."""
    tree = Tree("t", [0])
    for broken in (False, False, True):
        design = tree.extend(tree.root, [1, 2], level=1, status="done")
        for _ in range(2):
            tree.extend(design, [3], status="failed" if broken else "done", scores={} if broken else {"reward": 1.0})
    tree.extend(tree.root, [1], level=1, status="failed")  # no design: the engine broke while it was being written
    tab = table([tree])
    action = load_recipe("metaagent_x").build().credit(tab).action
    assert action is not None
    assert action[tab.start[1]] == action[tab.start[4]] == pytest.approx(1 / 3 / np.std([1, 1, 0], ddof=1), rel=1e-4)


@pytest.mark.papers("mars2")
def test_mars2_tells_the_next_attempt_what_the_one_above_scored() -> None:
    recipe = load_recipe("mars2")
    strategy = recipe.build().strategy
    asked = strategy.again.format(prompt="3 4>13:", answer="3+4", score="0")  # type: ignore[union-attr]
    assert asked == "\n[0] 3 4>13:", "the question is parted from the answer before it"
    parts = recipe.build()
    assert (parts.unit, parts.objective.level) == ("attempt", "path")
    token = load_recipe("mars2", ratio="token").build()
    assert token.objective.level == "token"


@pytest.mark.parametrize("segment", [8, 16, 64, 512])
def test_a_segment_of_treepo_can_repeat_itself(segment: int) -> None:
    """32 characters 8 times need 39 of them; a segment of 16 has 16."""
    ending = load_recipe("treepo", segment=segment).build().strategy.ending  # type: ignore[union-attr]
    assert repeats("ab" * (segment // 2), ending.window, ending.times)
    assert repeats("a" * segment, ending.window, ending.times)
    assert not repeats(("12+34=46, so 46-9=37;" * 40)[: min(segment, 40)], ending.window, ending.times)
    if segment == 512:
        assert (ending.window, ending.times) == (32, 8)


def test_treepo_ends_paths_that_repeat_themselves() -> None:
    def stuck(prefix: tuple[int, ...]) -> list[float]:
        return [1.0, *[0.0] * 26]

    parts = load_recipe("treepo", leaves=4, segment=8).build()
    for tree in grown(parts, SpellTask(stop=(), max_tokens=40), policy=stuck):
        ends = {leaf.finish for leaf in tree.leaves() if leaf.parent is not None}
        assert "repetition" in ends
    assert load_recipe("treepo", repeat=False).build().strategy.ending is None  # type: ignore[union-attr]


@pytest.mark.papers("ettrl")
def test_ttrl_votes_with_more_rollouts_than_it_teaches() -> None:
    parts = load_recipe("ttrl", votes=6, samples=3).build()
    for tree in grown(parts, SpellTask(), n=6):
        assert len(tree.children(tree.root)) == len(tree.leaves()) == 6, "independent rollouts"
        for shape in parts.shapers:
            shape(tree, 16)
        answers = [leaf.notes["answer"] for leaf in tree.leaves()]
        said = max(answers, key=answers.count)
        assert answers.count(said) == max(map(answers.count, answers))
        assert [leaf.usage for leaf in tree.leaves()] == [""] * 3 + ["dropped: it only voted"] * 3
        assert all(leaf.scores["reward"] in (0.0, 1.0) for leaf in tree.leaves())
        assert sum(leaf.scores["reward"] for leaf in tree.leaves()) == max(map(answers.count, answers))
    assert load_recipe("ettrl").card.baseline == "ttrl"
