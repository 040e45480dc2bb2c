"""Two policies in one run: each learns from what it wrote, and a resumed run goes on exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rolltree
from rolltree.credit.fold import Folded
from rolltree.metrics.log import read_metrics
from rolltree.policy.load import load_model
from rolltree.recipe.recipe import Parts
from rolltree.recipe.registry import load_recipe
from rolltree.training.config import TrainError
from rolltree.training.peers import check_peers, written_by
from rolltree.tree import Tree
from rolltree.tree.table import table
from tests.train.test_tree_recipes import Voted
from tests.train.toy import timeless, tiny_policy

KNOBS: dict[str, Any] = {
    "prompts": 3, "lr": 3e-3, "warmup": 1, "eval_every": 4, "eval_items": 4, "eval_samples": 2, "checkpoint_every": 2,
    "forests_every": 0, "quiet": True,
}  # fmt: skip


def run(out: Path, steps: int, resume: bool = False, **knobs: Any) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    recipe = load_recipe("mars2", nodes=5, again="=", **knobs)
    return rolltree.train(recipe, tiny_policy(), Voted(), out=out, resume=resume, steps=steps, **KNOBS).metrics


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_model(folder).model.state_dict()


@pytest.mark.papers("mars2")
def test_both_learn_and_differ_in_the_end_and_a_resumed_run_is_the_same(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", 4)
    run(tmp_path / "parts", 2)
    run(tmp_path / "parts", 4, resume=True)
    train = [line for line in timeless(whole) if line["kind"] == "train"]
    again = [line for line in timeless(read_metrics(tmp_path / "parts/metrics.jsonl")) if line["kind"] == "train"]
    assert train == again, "engines that answer each other step in turns"
    assert any(line.get("peer/budget/trained") for line in train)
    assert all(line.get("peer/policy/mismatch_max", 0.0) < 1e-4 for line in train), "each is read with its own weights"
    assert "peer/eval/pass@1" in next(line for line in reversed(whole) if line["kind"] == "eval")
    last = tmp_path / "whole/checkpoints/step-000004"
    mine, theirs, start = weights(last), weights(last / "peers/peer"), tiny_policy().model.state_dict()
    for one, other in ((mine, start), (theirs, start), (mine, theirs)):
        assert any(not torch.equal(one[name], other[name]) for name in one)


@pytest.mark.papers("mars2")
def test_a_peer_that_is_not_trained_stays_as_it_is(tmp_path: Path) -> None:
    lines = run(tmp_path / "run", 2, train_peer=False)
    assert not any(key.startswith("peer/") for line in lines for key in line)
    assert any(line.get("budget/trained") for line in lines if line["kind"] == "train")
    assert not (tmp_path / "run/checkpoints/step-000002/peers").exists()


def test_an_action_teaches_the_policy_that_wrote_it() -> None:
    tree = Tree("t", [0])
    for actor in ("policy", "peer", "planner"):
        tree.extend(0, [1, 2], actor=actor, status="done", scores={"reward": 1.0})
    view = table([tree])
    ones = Folded(*(np.ones(view.actions) for _ in range(3)))
    per_node = [written_by(view, ones, ["peer"]).gain, written_by(view, ones, ["peer"], others=True).weight]
    assert per_node[0].tolist() == [0, 0, 0, 1, 1, 0, 0]
    assert per_node[1].tolist() == [1, 1, 1, 0, 0, 1, 1]


@pytest.mark.papers("mars2")
def test_ratios_of_whole_paths_are_refused() -> None:
    mars2, gspo = load_recipe("mars2").build(), load_recipe("gspo").build()
    check_peers(mars2)
    mixed = Parts("mixed", mars2.strategy, mars2.credit, gspo.objective, peers=mars2.peers)
    with pytest.raises(TrainError, match="one ratio per path"):
        check_peers(mixed)
