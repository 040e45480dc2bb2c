"""Training without tokens: the same loop, the same checkpoints, the same refusals."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rolltree.generate.branches import BranchError
from rolltree.latents.flow import FlowNet, load_flow
from rolltree.recipe.recipe import RecipeError
from rolltree.training.config import LoraKnobs, TrainConfig, TrainError
from rolltree.training.start import train
from rolltree_papers.branch_grpo import BranchGrpo
from rolltree_papers.dynamic_treerpo import DynamicTreeRpo
from rolltree_papers.flow_grpo import FlowGrpo
from rolltree_papers.sol_rl import SolRl
from tests.latents.tiny import tiny_loaded

ROOT = Path(__file__).parents[2] / "rolltree"
BRANCH = BranchGrpo(splits="0,2", first=2)


def _config(**knobs: Any) -> TrainConfig:
    return replace(TrainConfig(steps=2, prompts=2, eval_every=0, forests_every=0), **knobs)


def _weights(model: FlowNet) -> np.ndarray[Any, Any]:
    return torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()


@pytest.mark.parametrize(
    "recipe",
    [FlowGrpo(group=4), FlowGrpo(group=4, window=3, start=1), BRANCH, BranchGrpo("0,2", 2, 2, width="best"),
     BranchGrpo("0,3", 2, 1, window=2, start=1), DynamicTreeRpo(depth=2, start=1)],
    ids=["flat", "mix", "branch", "pruned", "branch-mix", "dynamic"],
)  # fmt: skip
def test_recipes_train_and_engine_and_trainer_agree(recipe: Any, tmp_path: Path) -> None:
    loaded = tiny_loaded()
    before = _weights(loaded.model)
    result = train(recipe, loaded, "digits", out=tmp_path / "run", quiet=True, config=_config())
    told = result.last("train")
    assert told["policy/mismatch_max"] < 1e-3
    assert told["budget/trained"] > 0
    assert not np.array_equal(before, _weights(result.model))


def test_a_resumed_run_is_the_whole_run(tmp_path: Path) -> None:
    whole = train(BRANCH, tiny_loaded(), "digits", out=tmp_path / "a", quiet=True, config=_config(steps=3))
    train(BRANCH, tiny_loaded(), "digits", out=tmp_path / "b", quiet=True, config=_config(steps=1))
    rest = train(BRANCH, tiny_loaded(), "digits", out=tmp_path / "b", quiet=True, resume=True, config=_config(steps=3))
    assert np.array_equal(_weights(whole.model), _weights(rest.model))
    saved = load_flow(sorted((tmp_path / "b" / "checkpoints").iterdir())[-1])
    assert np.array_equal(_weights(saved), _weights(rest.model))


def test_a_resumed_run_with_a_coarse_copy_is_the_whole_run(tmp_path: Path) -> None:
    recipe = SolRl(explore=6, keep=4)
    whole = train(recipe, tiny_loaded(), "digits", out=tmp_path / "a", quiet=True, config=_config(steps=3))
    train(recipe, tiny_loaded(), "digits", out=tmp_path / "b", quiet=True, config=_config(steps=1))
    rest = train(recipe, tiny_loaded(), "digits", out=tmp_path / "b", quiet=True, resume=True, config=_config(steps=3))
    assert np.array_equal(_weights(whole.model), _weights(rest.model))


def test_a_penalty_keeps_a_reference_and_a_window_may_move(tmp_path: Path) -> None:
    recipe = FlowGrpo(group=4, kl=0.1)
    result = train(recipe, tiny_loaded(), "digits", out=tmp_path / "run", quiet=True, config=_config())
    assert "policy/kl_reference" in result.last("train") or any("kl" in name for name in result.last("train"))


def test_what_a_denoiser_cannot_do_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="adapters are for language models"):
        train(BRANCH, tiny_loaded(), "digits", out=tmp_path / "a", quiet=True, config=_config(lora=LoraKnobs(4, 8.0)))
    with pytest.raises(TrainError, match="blocks of a language model"):
        train(BRANCH, tiny_loaded(), "digits", out=tmp_path / "b", quiet=True, config=_config(ranks=2))
    with pytest.raises(Exception, match="no label of this model"):
        train("grpo", tiny_loaded(), "arithmetic", out=tmp_path / "c", quiet=True, config=_config())
    with pytest.raises(Exception, match="writes tokens"):
        train(BRANCH, "nano", "digits", out=tmp_path / "d", quiet=True, config=_config())
    with pytest.raises(BranchError, match="no steps"):
        BranchGrpo(splits="0,x").build()
    with pytest.raises(RecipeError, match="one leaf"):
        BranchGrpo(splits="", first=1).build()


def imports(module: str) -> set[str]:
    """What a module of the package imports of it, and what that imports in turn, by strategy, credit and objective."""
    seen: set[str] = set()
    queue = [module]
    while queue:
        name = queue.pop()
        path = _file(name)
        if name in seen or not path.is_file():
            continue
        seen.add(name)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rolltree."):
                queue.append(node.module)
    return {name for name in seen if name.split(".")[1] in ("generate", "credit", "objective", "training", "tree")}


def _file(module: str) -> Path:
    place = ROOT.parent / module.replace(".", "/")
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def test_recipes_of_text_and_of_images_stand_on_the_same_files() -> None:
    images, text = imports("rolltree_papers.branch_grpo"), imports("rolltree.recipe.treepo")
    own = {"rolltree.generate.branches"}
    assert images - text == own
    both = (
        images | imports("rolltree_papers.dts") | imports("rolltree.credit.depth") | imports("rolltree.training.step")
    )
    # None of them knows of latents: what does is the policy, its engine, and what reads a denoiser's guesses.
    for name in both:
        told = _file(name).read_text(encoding="utf-8")
        assert "rolltree.latents" not in told, name
