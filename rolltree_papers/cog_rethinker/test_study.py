"""What `cog_rethinker` promises beside what all of its kind do."""

import pytest

from rolltree.control.plan import Uniform
from rolltree.recipe.registry import load_recipe
from rolltree_papers.cog_rethinker import study
from rolltree_papers.cog_rethinker import study as rescue


def test_rescues_help_some_prompts_and_harm_others():
    world = rescue.RescueWorld(500, helps=1.5)
    assert 0.1 < (world.moved < 0).mean() < 0.25


@pytest.mark.parametrize("name", ["dapo", "cog_rethinker"])
def test_both_arms_draw_as_many_rollouts(name):
    parts = load_recipe(name).build()
    _, spent, asked = study.rescued(parts.control or Uniform(), parts.rounds, 0, 0.0)
    assert study.ROLLOUTS <= spent < 1.2 * study.ROLLOUTS
    assert (asked > 0) == (name == "cog_rethinker")
