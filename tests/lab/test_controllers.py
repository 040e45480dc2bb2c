"""All controls in one table: the registry decides who is in it, and the page says what the runs say."""

import io
import xml.etree.ElementTree as ET

import pytest
from rich.console import Console

from rolltree.control.registry import controls
from rolltree.lab.arms import arms
from rolltree.lab.board_figure import figure
from rolltree.lab.board_page import Board, text, write_page
from rolltree.lab.board_table import Column
from rolltree.lab.compare import compare
from rolltree.lab.controllers import BASELINE, BESIDE, Settings, board, command, steered
from rolltree.lab.runner import Shelf, Spec
from rolltree.lab.train_runner import TrainRunner
from rolltree.recipe.registry import load_recipe
from tests.lab.simulated import Simulated, conditions


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    shelf = Shelf(tmp_path_factory.mktemp("shelf"), Simulated({"grpo": 0.2, "vade": 0.3, "dars": 0.1}, noise=0.005))
    return compare(arms(["grpo", "vade", "dars"]), conditions(), range(3), shelf, console=Console(file=io.StringIO()))


def test_every_control_is_an_arm_in_its_recipe_or_over_the_baseline():
    chosen = steered(("train.prompts=4",))
    assert chosen[0].label == BASELINE
    assert {a.label for a in chosen} >= set(BESIDE)
    assert all(("train.prompts", 4) in a.knobs for a in chosen)
    own = {load_recipe(a.recipe).build().control.name for a in chosen}
    assert own | {str(dict(a.knobs).get("control")) for a in chosen} >= set(controls())
    assert len({a.label for a in chosen}) == len(chosen)


def test_an_arm_over_the_baseline_is_trained_with_that_control():
    (arm,) = [a for a in steered() if a.label == f"{BASELINE} + shuffled"]
    assert "rolltree.control.shuffled" in TrainRunner().modules(Spec(arm, 0, conditions()))


def test_the_table_ranks_arms_below_the_baseline_with_verdicts_and_costs(result):
    said = text("All", [board(result)], "python -m x", said="As expected.")
    rows = [line for line in said.splitlines() if line.startswith("| ")][1:]
    assert [row.split(" | ")[0] for row in rows] == ["| grpo", "| vade", "| dars"]
    assert "holds" in rows[1]
    assert "fails" in rows[2]
    assert "not reached (0 of 3)" in rows[2]
    assert "30.0 %" in rows[0]
    assert rows[0].endswith("| 0 |"), "simulated runs have evaluations and no steps of their own"
    assert said.endswith("## What came out\n\nAs expected.\n")
    assert "`python -m x`" in said


def test_each_arm_has_a_panel_and_everything_is_written(result, tmp_path):
    picture = ET.fromstring(figure(result))
    words = [e.text for e in picture.iter() if e.tag.endswith("text")]
    assert {"grpo", "vade", "dars"} <= set(words)
    told = ("All", [board(result)], "python -m x")
    page = write_page(tmp_path / "controllers.md", *told)
    assert page.read_text() == text(*told)
    page.write_text(text(*told, said="A person wrote this."))
    assert "A person wrote this." in write_page(page, *told).read_text(), "what a person wrote is kept"
    assert {p.name for p in tmp_path.iterdir()} == {"controllers.md", "controllers.svg", "controllers.json"}


def test_a_page_may_hold_several_boards_with_columns_of_their_own(result, tmp_path):
    boards = [
        Board("one", result, "First.", (Column("solved in training", "solved"),), heading="One"),
        Board("two", result, "Second.", heading="Two"),
    ]
    page = write_page(tmp_path / "both.md", "Both", boards, "python -m x").read_text()
    one, two = page.split("## Two")
    assert "| solved in training |" in one
    assert "solved in training" not in two
    assert {p.name for p in tmp_path.iterdir()} == {"both.md", "one.svg", "one.json", "two.svg", "two.json"}


def test_two_seeds_are_told_as_two_runs(tmp_path):
    shelf = Shelf(tmp_path, Simulated({"grpo": 0.2, "vade": 0.3}, noise=0.005))
    made = compare(arms(["grpo", "vade"]), conditions(), (1, 3), shelf, console=Console(file=io.StringIO()))
    said = text("All", [board(made)], "python -m x")
    assert "too few for an interval" in said
    assert "±" not in said
    assert "–" in said.split("| vade |")[1].split("|")[0]


def test_the_command_repeats_what_differs():
    assert command(Settings()) == "python -m rolltree.lab.controllers"
    assert (
        command(Settings(seeds=(1, 3), budget="30k")) == "python -m rolltree.lab.controllers --budget 30k --seeds 1 3"
    )
