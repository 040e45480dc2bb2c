"""A recipe's knobs stand beside the options of every verb: each verb reads each recipe, a clash is refused."""

from dataclasses import fields

import pytest

from rolltree.cli import main, rollout, solve
from rolltree.cli.common import SamplingArguments
from rolltree.cli.helptext import switched
from rolltree.cli.rollout import RolloutArguments
from rolltree.cli.solve import SolveArguments
from rolltree.cli.train import TrainArguments
from rolltree.errors import RolltreeError
from rolltree.recipe.registry import OPTIONS, list_recipes, load_recipe
from rolltree.task.data.flags import DataFlags
from rolltree.training.config import Optim, TrainConfig

OWNERS = (RolloutArguments, SamplingArguments, SolveArguments, TrainArguments, DataFlags, TrainConfig, Optim)
OWN = """
from dataclasses import dataclass
from typing import ClassVar
from rolltree.recipe.recipe import Card
from rolltree.recipe.registry import load_recipe

@dataclass(frozen=True)
class Mine:
    card: ClassVar[Card] = Card("mine", "Mine", "mine", 2026, "it runs", ("generate",))
    {knob}: str = "x"

    def build(self):
        return load_recipe("grpo").build()
"""


def test_the_names_that_recipes_leave_free_are_the_options_of_the_verbs():
    off = {name.removeprefix("--").replace("-", "_") for owner in OWNERS for name in switched(owner)}
    assert {field.name for owner in OWNERS for field in fields(owner)} | {f"no_{name}" for name in off} | {
        "help"
    } == OPTIONS


@pytest.mark.parametrize("name", [card.name for card in list_recipes()])
def test_rollout_and_solve_read_every_recipe(name, monkeypatch):
    """That train does is seen where every page's command is run."""
    read = []
    monkeypatch.setattr(rollout, "_grow", lambda parsed: read.append(parsed.recipe) or 0)
    monkeypatch.setattr(solve, "_solve", lambda _, parsed: read.append(parsed.recipe) or 0)
    for verb in ("rollout", "solve"):
        assert main([verb, name]) == 0
    assert read == [load_recipe(name)] * 2


@pytest.mark.parametrize("knob", ["answer", "seed", "items_from", "no_trees"])
@pytest.mark.parametrize("verb", ["train", "rollout", "solve", "recipes", "compare"])
def test_an_own_recipe_with_the_name_of_an_option_is_refused_in_every_verb(verb, knob, tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(OWN.format(knob=knob))
    assert main([verb, f"{path}:Mine"]) == 2
    said = capsys.readouterr().err
    assert f"has a knob {knob!r}, and the command line has an option of that name" in said
    assert said.count("\n") == 1
    with pytest.raises(RolltreeError, match=f"has a knob '{knob}'"):
        load_recipe(f"{path}:Mine")
