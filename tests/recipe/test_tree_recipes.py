"""Recipes that grow trees: each runs from prompt to folded credit, and is its paper's method where it counts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from rolltree.credit.fold import fold, leaf_weights
from rolltree.credit.needs import check_needs
from rolltree.generate.runner import grow
from rolltree.recipe.check import check
from rolltree.recipe.recipe import Parts, RecipeError
from rolltree.recipe.registry import load_recipe
from rolltree.recipe.treepo import repeats
from rolltree.task.protocol import Task
from rolltree.testing.tiny import SpellTask, Walk, tiny_engine
from rolltree.tree import Tree
from rolltree.tree.table import table
from tests.recipe.small import SMALL


def grown(parts: Parts, n: int = 4, seed: int = 0) -> tuple[list[Tree], Task]:
    task = Walk() if "turns" in parts.strategy.needs else SpellTask()
    check(parts, tiny_engine(), task)
    return list(asyncio.run(grow(parts.strategy, tiny_engine(), task, islice(task.items("train"), n), seed=seed))), task


ONE_OUTCOME = {"tree_planner", "weboperator", "intern_atlas", "label_tree"}
"""A tree of these has one outcome, which says nothing where all of a batch are alike."""


@pytest.mark.papers("intern_atlas", "label_tree", "tree_planner", "weboperator")
@pytest.mark.parametrize("name", [name for name in SMALL if name not in ONE_OUTCOME])
def test_from_prompts_to_folded_credit(name: str) -> None:
    parts = load_recipe(name, **SMALL[name]).build()
    trees, task = grown(parts)
    for tree in trees:
        for shape in parts.shapers:
            shape(tree, task.max_tokens)
    view = table(trees)
    check_needs(view, parts.credit)
    advantage = parts.credit(view)
    weights = leaf_weights(view, parts.averaging, counted=advantage.counted, fixed_length=task.max_tokens)
    folded = fold(view, advantage, weights, parts.multiplicity)
    assert np.isfinite(folded.gain).all()
    assert np.isfinite(folded.loss).all()
    assert (folded.gain > 0).any()
    assert (folded.loss < 0).any()
    assert folded.weight.max() > 0


@pytest.mark.papers("aepo", "arpo")
def test_extras_that_credit_reads_must_be_recorded() -> None:
    parts = load_recipe("aepo").build()
    lax = replace(parts, strategy=load_recipe("arpo").build().strategy)
    check(parts, tiny_engine(), Walk())
    with pytest.raises(RecipeError, match="needs 'entropy', which the strategy TurnForks does not record"):
        check(lax, tiny_engine(), Walk())


@pytest.mark.papers("arpo")
def test_hard_and_soft_arpo_agree_on_shared_tokens_before_any_clip() -> None:
    """The sum of leaves' advantages on a shared token is leaves × their mean."""
    trees, _ = grown(load_recipe("arpo", leaves=8, first=3).build())
    view = table(trees)
    nets = []
    for kind in ("soft", "hard"):
        advantage = load_recipe("arpo", credit=kind).build().credit(view)
        folded = fold(view, advantage, leaf_weights(view, "token"), "per_leaf")
        nets.append(folded.gain + folded.loss)
    assert np.abs(nets[0]).max() > 0
    assert nets[0] == pytest.approx(nets[1])


def test_treepo_draws_its_first_width_and_ends_repetition() -> None:
    trees, _ = grown(load_recipe("treepo", leaves=12, segment=2, first=2, first_most=6).build(), n=12)
    first = {next(len(e.numbers["children"]) for e in t.events if e.kind == "fork" or "children" in e.numbers)
             for t in trees}  # fmt: skip
    assert first <= set(range(2, 7))
    assert len(first) > 1
    assert repeats("abcabcabcabc", 3, 4)
    assert not repeats("abcabcabcabc", 3, 5)
    trees, _ = grown(load_recipe("treepo", leaves=6, segment=5, repeat_window=1, repeat_times=2).build(), n=30)
    ended = [leaf for tree in trees for leaf in tree.leaves() if leaf.finish == "repetition"]
    assert ended
    assert all("reward" in leaf.scores for leaf in ended)
