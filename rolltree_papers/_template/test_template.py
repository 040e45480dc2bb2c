"""The checks of a paper: what its card promises, on an exact problem where there is one."""

from __future__ import annotations

import asyncio
from itertools import islice

import pytest

from rolltree.generate.runner import grow
from rolltree.recipe.recipe import RecipeError
from rolltree.testing.tiny import SpellTask, tiny_engine
from rolltree_papers._template import Template


def test_half_of_a_group_is_drawn_hotter():
    task = SpellTask(stop=())
    strategy = Template(group=6).build().strategy
    (tree,) = asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("train"), 1), seed=1))
    births = [leaf.birth for leaf in tree.leaves()]
    assert len(births) == 6
    assert births.count("resample") == 3


def test_a_temperature_of_nothing_is_refused():
    with pytest.raises(RecipeError, match="heat=0"):
        Template(heat=0).build()
