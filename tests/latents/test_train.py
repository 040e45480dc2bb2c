"""Training without tokens: the same loop, the same checkpoints, the same refusals."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rolltree.latents.flow import FlowNet
from rolltree.recipe.registry import load_recipe
from rolltree.training.config import TrainConfig
from rolltree.training.start import train
from tests.latents.tiny import tiny_loaded

ROOT = Path(__file__).parents[2] / "rolltree"


def _config(**knobs: Any) -> TrainConfig:
    return replace(TrainConfig(steps=2, prompts=2, eval_every=0, forests_every=0), **knobs)


def _weights(model: FlowNet) -> np.ndarray[Any, Any]:
    return torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()


@pytest.mark.papers("branch_grpo", "dynamic_treerpo", "flow_grpo")
@pytest.mark.parametrize(
    ("recipe", "knobs"),
    [
        ("flow_grpo", {"group": 4}),
        ("flow_grpo", {"group": 4, "window": 3, "start": 1}),
        ("branch_grpo", {"splits": "0,2", "first": 2}),
        ("branch_grpo", {"splits": "0,2", "first": 2, "width": "best"}),
        ("branch_grpo", {"splits": "0,3", "first": 1, "window": 2, "start": 1}),
        ("dynamic_treerpo", {"depth": 2, "start": 1}),
    ],
    ids=["flow_grpo", "flow_grpo-mix", "branch_grpo", "branch_grpo-pruned", "branch_grpo-mix", "dynamic_treerpo"],
)
def test_recipes_train_and_engine_and_trainer_agree(recipe: str, knobs: Any, tmp_path: Path) -> None:
    loaded = tiny_loaded()
    before = _weights(loaded.model)
    made: Any = load_recipe(recipe, **knobs)
    result = train(made, loaded, "digits", out=tmp_path / "run", quiet=True, config=_config())
    told = result.last("train")
    assert told["policy/mismatch_max"] < 1e-3
    assert told["budget/trained"] > 0
    assert not np.array_equal(before, _weights(result.model))


def file_of(module: str) -> Path:
    """Where a module stands."""
    base = ROOT.parent / module.replace(".", "/")
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def imports(module: str) -> set[str]:
    """What a module of the package imports of it, and what that imports in turn, by strategy, credit and objective."""
    seen: set[str] = set()
    queue = [module]
    while queue:
        name = queue.pop()
        path = file_of(name)
        if name in seen or not path.is_file():
            continue
        seen.add(name)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rolltree."):
                queue.append(node.module)
    return {name for name in seen if name.split(".")[1] in ("generate", "credit", "objective", "training", "tree")}


@pytest.mark.papers("branch_grpo", "dts")
def test_recipes_of_text_and_of_images_stand_on_the_same_files() -> None:
    images, text = imports("rolltree_papers.branch_grpo"), imports("rolltree.recipe.treepo")
    own = {"rolltree.generate.branches"}
    assert images - text == own
    both = (
        images | imports("rolltree_papers.dts") | imports("rolltree.credit.depth") | imports("rolltree.training.step")
    )
    # None of them knows of latents: what does is the policy, its engine, and what reads a denoiser's guesses.
    for name in both:
        told = file_of(name).read_text(encoding="utf-8")
        assert "rolltree.latents" not in told, name
