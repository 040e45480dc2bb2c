"""A run under a schedule that stops between two steps goes on exactly where the engine's reactions are repeatable."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import rolltree
from rolltree.task.registry import load_task
from tests.train.toy import KNOBS, Early, timeless, tiny_policy


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.papers("april")
def test_april_takes_the_same_path_after_a_stop(tmp_path: Path) -> None:
    """At this seed a round of the plan has partly begun when the run stops: its rest must come as it would have."""
    task = load_task("arithmetic", level=1)
    knobs = {**KNOBS, "eval_every": 0, "forests_every": 0, "steps": 3, "prompts": 8, "seed": 3, "lr": 1e-5}
    whole = rolltree.train("april", "nano", task, out=tmp_path / "whole", **knobs)
    rolltree.train("april", "nano", task, out=tmp_path / "parts", **{**knobs, "steps": 2})
    again = rolltree.train("april", "nano", task, out=tmp_path / "parts", resume=True, **knobs)
    assert timeless(again.metrics) == timeless(whole.metrics)
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("recipe", ["tis", "icepop"])
def test_what_reads_the_engines_log_probs_goes_on_exactly_behind_an_evaluation(tmp_path: Path, recipe: str) -> None:
    knobs = {**KNOBS, "steps": 5, "eval_every": 3, "forests_every": 0, "checkpoint_every": 3}
    whole = rolltree.train(recipe, tiny_policy(), Early(), out=tmp_path / "whole", **knobs)
    rolltree.train(recipe, tiny_policy(), Early(), out=tmp_path / "parts", **{**knobs, "steps": 3})
    again = rolltree.train(recipe, tiny_policy(), Early(), out=tmp_path / "parts", resume=True, **knobs)
    assert timeless(again.metrics) == timeless(whole.metrics)
