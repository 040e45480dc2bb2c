"""All controls in one table: the registry decides who is in it, and the page says what the runs say."""

import io
import xml.etree.ElementTree as ET

import pytest
from rich.console import Console

from rolltree.control.registry import controls
from rolltree.lab.arms import arms
from rolltree.lab.compare import compare
from rolltree.lab.runner import Shelf, Spec
from rolltree.lab.trace import LabError, write_json
from rolltree.lab.train_runner import TrainRunner
from rolltree.recipe.registry import load_recipe
from studies.board_figure import figure
from studies.board_page import Board, text, write_page
from studies.board_store import stored
from studies.board_table import BoardColumn, steps_until
from studies.controllers import BASELINE, BESIDE, ControllerSettings, board, command, main, measured, steered
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
    assert "worse" in rows[2]
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
        Board("one", result, "First.", (BoardColumn("solved in training", "solved"),), heading="One"),
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
    assert command(ControllerSettings()) == "python -m studies.controllers"
    assert (
        command(ControllerSettings(seeds=(1, 3), budget="30k"))
        == "python -m studies.controllers --budget 30k --seeds 1 3"
    )


def test_an_arm_joins_a_table_that_stands_without_the_others_being_trained_again(tmp_path):
    quiet = Console(file=io.StringIO())
    on = {"budget": "10k", "out": tmp_path, "cache": tmp_path / "cache"}
    runs = Simulated({"grpo": 0.2, "vade": 0.3, "dars": 0.1, "xrpo": 0.25}, noise=0.005)
    whole = measured(ControllerSettings(only=("vade", "dars", "xrpo"), **on), quiet, runs)
    stands = board(measured(ControllerSettings(only=("vade", "dars"), **on), quiet, runs))
    write_page(tmp_path / "controllers.md", "All", [stands], "python -m x")
    runs.made.clear()
    on["cache"] = tmp_path / "empty"
    added = measured(ControllerSettings(only=("xrpo",), keep=True, **on), quiet, runs)
    assert {label for label, _ in runs.made} == {"grpo", "xrpo"}
    assert [a.label for a in added.arms] == [a.label for a in whole.arms], "the order is the registries'"
    assert [(c.subject, c.effect, c.words) for c in added.contrasts] == [
        (c.subject, c.effect, c.words) for c in whole.contrasts
    ], "every arm is judged among all of them"
    assert command(ControllerSettings(only=("xrpo",), keep=True)) == "python -m studies.controllers"
    write_page(tmp_path / "controllers.md", "All", [board(added)], "python -m x")
    assert {t.label for t in stored(tmp_path / "controllers.json", 5)} == {"grpo", "vade", "dars", "xrpo"}

    on["cache"] = tmp_path / "changed"
    with pytest.raises(LabError, match="grpo, seed 1, does not repeat"):
        measured(ControllerSettings(only=("xrpo",), keep=True, **on), quiet, Simulated({"grpo": 0.1, "xrpo": 0.2}))


def test_runs_of_a_stored_table_have_their_steps_and_means_again(tmp_path):
    column = BoardColumn("groups without variance", "zero_variance")
    row = {"decoded": 0.0, "trained": 0.0, "seconds": 0.0, "pass@1": 0.1, "pass@8": 0.2}
    rows = [row, {**row, "decoded": 50.0}, {**row, "decoded": 80.0}]
    runs = {"grpo": [{"seed": 3, "rows": rows, "steps": 8, "zero_variance": 0.25}]}
    write_json(tmp_path / "x.json", runs)
    (trace,) = stored(tmp_path / "x.json", every=5, columns=(column,))
    assert [steps_until(trace, cost) for cost in (0, 9, 10, 50, 60, 80)] == [0, 0, 1, 5, 6, 8]
    assert trace.mean("zero_variance") == 0.25
    assert trace.curve("pass@1")[0].tolist() == [0, 50, 80]
    (tmp_path / "x.json").write_text('{"grpo": [{"seed": 3}]}')
    with pytest.raises(LabError, match="make the whole board again"):
        stored(tmp_path / "x.json", every=5)


def test_an_arm_that_does_not_exist_is_refused_before_anything_is_trained(tmp_path):
    with pytest.raises(LabError, match="no arm 'vede'; there are: grpo, "):
        main(ControllerSettings(only=("vede",), out=tmp_path, cache=tmp_path))
