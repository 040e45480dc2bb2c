"""Recipes of credits and objectives that ask for more than a flat group, trained for a few real steps."""

from __future__ import annotations

import string
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

import rolltree
from rolltree.recipe.registry import load_recipe
from tests.train.test_tree_recipes import KNOBS, Talk
from tests.train.toy import Early, tiny_policy


@dataclass(frozen=True)
class Shown(Talk):
    """Talk in turns of one character, of which the expert always gives the same: a random policy sometimes hits it."""

    stop: tuple[str, ...] = tuple(string.ascii_letters + string.digits + string.punctuation + " ")

    def act(self, item: Any, state: Any, rng: Random, noise: float = 0.0) -> str:
        return "a"


CASES: list[tuple[str, dict[str, Any], Early]] = [
    ("otr", {}, Early()),
    ("brpo", {"judge": "measured", "group": 6, "skew": 1.0, "noise": 0.2}, Early()),
    ("self_pretraining", {"rollouts": 4}, Early()),
    ("adhint", {"group": 8}, Early()),
    ("remax", {"group": 3}, Early()),
    ("portool", {"leaves": 6, "ways": 2}, Talk()),
    ("ui_s1", {"group": 16}, Shown()),
    ("rorecomp", {"group": 6, "compensate": 0.5}, Early()),
    ("himac", {"plans": 3, "executions": 2, "turns": 1}, Talk()),
    ("hapo", {"group": 6, "tau": 0.1, "updates": 1}, Early()),
]


@pytest.mark.papers(
    "adhint", "brpo", "hapo", "himac", "otr", "portool", "remax", "rorecomp", "self_pretraining", "ui_s1"
)
@pytest.mark.parametrize(("name", "knobs", "task"), CASES, ids=[name for name, _, _ in CASES])
def test_a_few_real_steps(name: str, knobs: dict[str, Any], task: Early, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    recipe = load_recipe(name, **knobs)
    done = rolltree.train(recipe, tiny_policy(), task, out=tmp_path / "run", **{**KNOBS, "prompts": 4})
    steps = [line for line in done.metrics if line["kind"] == "train"]
    assert len(steps) == 3
    assert any(line["budget/trained"] for line in steps)
    if name == "rorecomp":
        assert [line.get("rollout/recalled_groups", 0) for line in steps] == [0, 2, 2]
    if name == "otr":
        assert all(0 < line["policy/data_probability"] < 1 for line in steps)
