"""What makes a recipe the method of its paper, where a plausible substitute would pass every other test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest

from rolltree.contract.tiny import CODEC, STOP, Spell, Walk, tiny_engine
from rolltree.engine.tabular import TabularEngine
from rolltree.generate.runner import grow
from rolltree.recipe.recipe import Parts
from rolltree.recipe.registry import load_recipe
from rolltree.tree import Tree
from rolltree.tree.table import table


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


def test_aepo_splits_the_leaves_by_sums_over_the_heads_of_turns() -> None:
    """Means per token made it start 8 or 9 of 16 at the root whatever the prompt."""
    parts = load_recipe("aepo", top=5).build()
    for tree in grown(parts, Walk(max_tokens=48), policy=uncertain_first):
        told = next(e.numbers for e in tree.events if e.kind == "allocate")
        # Twenty tokens with five of 25 equal alternatives each: −Σ p ln p = 5/25 · ln 25 over ln 27.
        assert told["at_root"] == pytest.approx(20 * 0.2 * np.log(25) / np.log(27), rel=1e-4)
        assert told["at_tools"] < 0.51 * told["at_root"]
        assert told["starts"] >= 13


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
    assert recipe.card.evidence is not None
    assert "optim.minibatches=4" in recipe.card.evidence.settings


def test_echo_watches_what_it_restarts() -> None:
    parts = load_recipe("echo", leaves=6, stems=2, entropy=0.87, confidence=0.45, rise=0.0).build()
    for tree in grown(parts, Spell(stop=(), max_tokens=40), n=6):
        restarts = [n for n in tree.walk() if n.birth == "restart"]
        assert all(len(n) <= 4 for n in restarts)
