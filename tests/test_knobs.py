"""Values of the wrong kind: refused by name, with what would do, before any work."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import pytest

from rolltree.cli import main
from rolltree.control.registry import load_control
from rolltree.credit.registry import credits, load_credit
from rolltree.errors import RolltreeError
from rolltree.knobs.values import KnobError, check_instance, checked_knobs
from rolltree.objective.registry import load_objective
from rolltree.recipe.registry import load_recipe, recipes
from rolltree.task.registry import load_task
from rolltree.training.config import TrainConfig


@dataclass(frozen=True)
class Inner:
    share: float = 0.5


@dataclass(frozen=True)
class Outer:
    count: int = 1
    flag: bool = False
    mode: Literal["a", "b"] = "a"
    ends: tuple[str, ...] = ()
    pair: tuple[float, float] = (0.0, 1.0)
    most: int | None = None
    inner: Inner = field(default_factory=Inner)


@pytest.mark.parametrize(
    ("knob", "value", "says"),
    [
        ("count", 1.5, "count=1.5 makes no sense; give a whole number"),
        ("count", True, "count=True"),
        ("count", 10**400, "makes no sense; give a whole number"),
        ("count", "3", "count='3'"),
        ("flag", "maybe", "flag='maybe' makes no sense; give true or false"),
        ("flag", 1, "flag=1"),
        ("mode", "c", "mode='c' makes no sense; give 'a' or 'b'"),
        ("ends", (1,), "give a list, each of it text"),
        ("ends", "x", "ends='x'"),
        ("pair", (0.0, math.nan), "give a list of 2, a number, a number"),
        ("most", "many", "most='many' makes no sense; give a whole number or nothing"),
        ("inner", Inner(math.nan), "share=nan makes no sense; give a number"),
    ],
)
def test_values_of_another_kind_are_refused(knob, value, says):
    with pytest.raises(KnobError, match=says.replace("(", r"\(")):
        check_instance("", Outer(**{knob: value}))


def test_values_of_their_kind_pass_and_lists_become_tuples():
    check_instance("", Outer(3, True, "b", ("x",), (1, math.inf), 7))
    assert checked_knobs("", Outer, {"ends": ["x"], "most": None}) == {"ends": ("x",), "most": None}


@pytest.mark.papers("dars")
@pytest.mark.parametrize(
    "make",
    [
        lambda: TrainConfig(loss_limit=math.nan),
        lambda: TrainConfig(mismatch_share=math.nan),
        lambda: TrainConfig(mismatch_share=1.5),
        lambda: TrainConfig(mismatch_limit=-1.0),
        lambda: TrainConfig(steps=1.5),
        lambda: load_credit("grpo", ddof=7),
        lambda: load_credit("gigpo", omega=math.nan),
        lambda: load_objective("clipped", clip_high=math.nan),
        lambda: load_objective("clipped", kl=math.nan),
        lambda: load_recipe("grpo", ddof=7),
        lambda: load_recipe("grpo", group="8"),
        lambda: load_control("dars", schedule="harder"),
        lambda: load_task("countdown?use_all=maybe"),
        lambda: load_task("countdown", use_all="maybe"),
        lambda: load_task("jsonl:/nowhere?stop=[1]"),
        lambda: load_task("jsonl:/nowhere?max_tokens=nan"),
    ],
)
def test_every_registry_refuses_them(make):
    with pytest.raises(RolltreeError) as error:
        make()
    assert "\n" not in str(error.value)
    assert "there is no file" not in str(error.value)


def test_defaults_of_everything_are_of_their_own_kind():
    for name in credits():
        check_instance(name, load_credit(name))
    for name in recipes():
        check_instance(name, load_recipe(name))


@pytest.mark.parametrize(
    "options", [["--loss-limit", "nan"], ["--mismatch-share", "nan"], ["--lr", "nan"], ["--temperature", "nan"]]
)
def test_the_command_line_refuses_what_is_no_number_by_its_option(options, capsys, tmp_path):
    assert main(["train", "grpo", "--out", str(tmp_path / "run"), *options]) == 2
    said = capsys.readouterr().err
    assert said.startswith("rolltree: ")
    assert f"{options[0].strip('-').replace('-', '_')}=nan makes no sense; give a number" in said
    assert not (tmp_path / "run").exists()
