"""Knobs that vary while a run goes on: each step has its values, and a resumed run has the same ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import rolltree
from rolltree.errors import RolltreeError
from rolltree.knobs.varying import OVER
from rolltree.recipe.compose import Course, Steered, compose
from rolltree.recipe.recipe import Parts
from rolltree.recipe.registry import load_recipe
from rolltree.training.config import Optim, TrainConfig, TrainError
from rolltree.training.loop import RunEvent
from tests.train.toy import KNOBS, Early, timeless, tiny_policy

QUIET = {**KNOBS, "eval_every": 0}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def run(recipe: Any, out: Path, **knobs: Any) -> Any:
    return rolltree.train(recipe, tiny_policy(), Early(), out=out, **{**QUIET, **knobs})


def widths(recipe: Any, out: Path, **knobs: Any) -> list[int]:
    seen: list[int] = []

    def listen(live: RunEvent) -> None:
        if live.kind == "grown":
            seen.extend({len(t.leaves()) for t in live.trees})

    run(recipe, out, listen=listen, **knobs)
    return seen


def test_a_strategys_width_and_the_optimizers_rate_follow_the_step(tmp_path: Path) -> None:
    recipe = load_recipe("grpo", group="2->6 over 4")
    assert widths(recipe, tmp_path / "a") == [2, 3, 4, 5, 6, 6]
    done = run("grpo", tmp_path / "b", lr="1e-3->3e-3 over 4", minibatches="1, 2 at 3")
    lines = [line for line in done.metrics if line["kind"] == "train"]
    assert [line["optim/lr"] for line in lines] == pytest.approx([1e-3, 1.5e-3, 2e-3, 2.5e-3, 3e-3, 3e-3])
    assert [line["optim/updates"] for line in lines] == [1, 1, 1, 2, 2, 2]


def test_the_step_uses_the_credit_and_objective_of_its_step(tmp_path: Path) -> None:
    """Whatever the penalty's weight becomes, the reference it needs was kept from the start."""
    recipe = load_recipe("grpo", kl="0, 0.1 at 2", use_credit="downsampled(leaves='1->0.5 over 3', tokens=1)")
    done = run(recipe, tmp_path / "run")
    lines = [line for line in done.metrics if line["kind"] == "train"]
    assert ["policy/kl_reference" in line for line in lines] == [False, False, True, True, True, True]
    taught = [line["budget/trained"] for line in lines]
    assert taught[3] <= taught[0] / 2 + 8


@pytest.mark.papers("dars")
def test_a_controls_knobs_vary_too() -> None:
    recipe = Steered(load_recipe("grpo"), "dars", {"schedule": "even, hard at 3"})
    assert [compose(recipe, step).control.schedule for step in (0, 3)] == ["even", "hard"]  # type: ignore[attr-defined]


@pytest.mark.papers("hapo", "remix", "rorecomp")
@pytest.mark.parametrize(
    "recipe",
    [
        load_recipe("remix", phase="mixed, fresh at 3", mixing="1->0.5 over 4"),
        load_recipe("hapo", updates=2),
        load_recipe("rorecomp", compensate="0.5->0 over 5"),
        load_recipe("grpo", clip="0.2->0.1 by policy/entropy in 0..4"),
    ],
    ids=["remix", "hapo", "rorecomp", "by entropy"],
)
def test_a_resumed_run_has_the_same_values(recipe: Any, tmp_path: Path) -> None:
    knobs = {"lr": "3e-3->1e-3 over 5"}
    whole = run(recipe, tmp_path / "whole", **knobs)
    run(recipe, tmp_path / "parts", **knobs, steps=4)
    again = run(recipe, tmp_path / "parts", resume=True, **knobs)
    assert timeless(again.metrics) == timeless(whole.metrics)
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_schedules_stand_in_the_configuration_and_may_not_change(tmp_path: Path) -> None:
    recipe = load_recipe("grpo", clip="0.2->0.1 over 10")
    run(recipe, tmp_path / "run", steps=2)
    told = json.loads((tmp_path / "run" / "config.json").read_text())
    assert told["varying"] == {"clip": "0.2->0.1 over 10"}
    assert told["recipe"]["clip"] == "0.2->0.1 over 10"
    with pytest.raises(TrainError, match="over 10 and cannot be resumed with"):
        run(load_recipe("grpo", clip="0.2->0.1 over 20"), tmp_path / "run", resume=True)


def test_what_fits_at_first_and_not_later_is_refused_before_the_first_token(tmp_path: Path) -> None:
    with pytest.raises(RolltreeError, match="group=1 leaves nothing to compare"):
        run(load_recipe("grpo", group="4->1 over 50"), tmp_path / "a")
    with pytest.raises(TrainError, match="lr=-"):
        TrainConfig(optim=Optim(lr="1e-3->-1e-3 over 10"))  # type: ignore[arg-type]
    TrainConfig(optim=Optim(lr="1e-3->0 over 10"))  # type: ignore[arg-type]
    with pytest.raises(RolltreeError, match="group='many'"):
        run(load_recipe("grpo", group="many"), tmp_path / "b")


@pytest.mark.papers("hapo")
def test_hapo_tempers_by_the_last_steps_entropies(tmp_path: Path) -> None:
    tempered: list[set[float]] = []

    def listen(live: RunEvent) -> None:
        if live.kind == "grown":
            notes = [e.numbers for t in live.trees for e in t.events if "tau" in e.numbers]
            tempered.append({n["pivot"] for n in notes})

    done = run(load_recipe("hapo", rounds=1), tmp_path / "run", steps=3, listen=listen)
    lines = [line for line in done.metrics if line["kind"] == "train"]
    assert tempered[0] == set(), "the first step is drawn as it is"
    assert tempered[1:] == [{line["policy/log_entropy_pivot"]} for line in lines[:2]]


@pytest.mark.papers("remix")
def test_remix_replaces_its_base_once_and_then_is_on_policy() -> None:
    course = Course(load_recipe("remix"))
    at = {percent: course.at(percent, {OVER: percent / 100}) for percent in (0, 24, 25, 33, 49, 50, 99)}
    mixing = {percent: parts.objective.mixing for percent, parts in at.items() if percent < 50}  # type: ignore[attr-defined]
    assert mixing == {0: 1, 24: 1, 25: 0.9, 33: 0.8, 49: 0.5}
    assert [parts.recall is None for parts in at.values()] == [False] * 5 + [True] * 2
    assert [dict(parts.optim) for parts in (at[49], at[50])] == [{"epochs": 2}, {}]
    assert at[0].anchor == at[49].anchor != at[50].anchor == at[99].anchor
    assert "previous" not in at[50].objective.needs


@pytest.mark.papers("remix")
def test_the_anchor_moves_where_its_name_changes(tmp_path: Path) -> None:
    """The reference's KL begins anew at the switch: 0 on the first step after it."""
    recipe = load_recipe("remix", phase="mixed, fresh at 3", mixing=1.0, beta=0.1)
    lines = [line for line in run(recipe, tmp_path / "run").metrics if line["kind"] == "train"]
    kl = [line["policy/kl_reference"] for line in lines]
    assert kl[2] > 0
    assert kl[3] == pytest.approx(0, abs=1e-7)
    assert kl[4] > 0


@pytest.mark.papers("conciser", "d3s", "latr")
def test_the_papers_stages_and_ramps_are_the_defaults() -> None:
    shares = [compose(load_recipe("d3s"), step).credit.leaves for step in (0, 50, 100)]  # type: ignore[attr-defined]
    assert shares == pytest.approx([0.25, 0.5, 0.75])
    latr = load_recipe("latr")
    assert [compose(latr, s).strategy.share for s in (0, 10, 25, 100, 300)] == [1, 0.75, 0.5, 0.25, 0]  # type: ignore[union-attr]
    stages = [compose(load_recipe("conciser"), 0, {OVER: over}) for over in (0.0, 0.7)]
    assert [bool(parts.filters) for parts in stages] == [True, False]
    assert [len(parts.shapers) for parts in stages] == [0, 1], "brevity is paid for in the second stage alone"


def test_a_rate_that_varies_in_two_ways_is_refused() -> None:
    with pytest.raises(TrainError, match="give one of them"):
        TrainConfig(optim=Optim(lr="1e-4->0 over 10", lr_schedule="cosine", lr_updates=10))  # pyright: ignore[reportArgumentType]


def default_run(name: str) -> list[Parts]:
    """A recipe's parts at every step of a run of the default length."""
    course, steps = Course(load_recipe(name)), TrainConfig().steps
    return [course.at(step, {OVER: step / steps}) for step in range(steps)]


@pytest.mark.papers("arise", "brorl", "conciser", "remix")
def test_a_default_run_pays_for_brevity_and_replaces_references() -> None:
    assert [len(parts.shapers) for parts in default_run("conciser")] == [0] * 60 + [1] * 40
    assert len({parts.anchor for parts in default_run("brorl")}) == 4
    assert [parts.recall is None for parts in default_run("remix")] == [False] * 50 + [True] * 50
    assert [parts.control.use for parts in default_run("arise")] == [False] * 50 + [True] * 50  # type: ignore[attr-defined]


@pytest.mark.parametrize("end", [{"steps": 5}, {"steps": 1000, "decoded": 2500}])
def test_the_loop_goes_by_how_much_of_the_run_is_over(end: dict[str, int], tmp_path: Path) -> None:
    done = run(load_recipe("grpo", group="2, 6 at 60%"), tmp_path / "run", **end)
    lines = [line for line in done.metrics if line["kind"] == "train"]
    spent = [0.0, *(line["budget/decoded_total"] for line in lines)]
    over = [(spent[i] / 2500 if "decoded" in end else i / 5) for i in range(len(lines))]
    assert [line["rollout/group_size"] for line in lines] == [6 if share >= 0.6 else 2 for share in over]
    assert len({line["rollout/group_size"] for line in lines}) == 2


@pytest.mark.papers("brorl")
def test_brorl_replaces_its_reference_in_a_short_run_too(tmp_path: Path) -> None:
    recipe = load_recipe("brorl", group=4, rounds=1)
    lines = [line for line in run(recipe, tmp_path / "run", steps=8).metrics if line["kind"] == "train"]
    apart = [line["policy/kl_reference"] > 1e-9 for line in lines]
    assert apart == [False, True, False, True, False, True, False, True]


def test_a_run_whose_shares_count_is_resumed_to_the_same_end(tmp_path: Path) -> None:
    recipe = load_recipe("grpo", group="2, 6 at 60%")
    run(recipe, tmp_path / "run", steps=2)
    with pytest.raises(TrainError, match=r"train.steps=2, of which group='2, 6 at 60%' takes shares"):
        run(recipe, tmp_path / "run", steps=4, resume=True)
    run(load_recipe("grpo"), tmp_path / "b", steps=2, lr="1e-3->0 over 100%")
    with pytest.raises(TrainError, match=r"of which optim\.lr='1e-3->0 over 100%' takes shares"):
        run(load_recipe("grpo"), tmp_path / "b", steps=4, lr="1e-3->0 over 100%", resume=True)


def test_a_run_says_which_schedules_it_ends_before(tmp_path: Path) -> None:
    run(load_recipe("grpo", group="4, 6 at 2", clip="0.2->0.1 over 2"), tmp_path / "a", steps=2)
    said = (tmp_path / "a" / "log.txt").read_text()
    assert "group='4, 6 at 2' goes on behind the run's 2 steps" in said
    assert "clip" not in said, "a ramp that ends with the run is whole"
    run(load_recipe("grpo", group="4, 6 at 50%"), tmp_path / "b", steps=2)
    assert "goes on behind" not in (tmp_path / "b" / "log.txt").read_text()
