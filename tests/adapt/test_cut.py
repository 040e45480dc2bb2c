"""TRL trainings whose model is cut over two processes learn what one whole process learns from the same rollouts."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import rolltree

pytest.importorskip("trl", reason="TRL is not installed: pip install 'rolltree[trl]'")
TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def run(how: str, folder: Path, *launch: str) -> dict[str, Any]:
    """What one training left: whole weights, and the first process's share of them."""
    told = subprocess.run(
        [sys.executable, *launch, "-m", "tests.adapt.cut", how, str(folder)], check=False,
        capture_output=True, text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "DS_ACCELERATOR": "cpu"},
    )  # fmt: skip
    assert told.returncode == 0, told.stderr[-4000:]
    return torch.load(folder / f"{how}.pt")


def distance(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    assert set(a) == set(b)
    return float(sum(((a[name] - b[name]) ** 2).sum() for name in a) ** 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fsdp2", "deepspeed"])
def test_a_cut_model_learns_what_a_whole_one_learns(how: str, tmp_path: Path) -> None:
    if how == "deepspeed" and importlib.util.find_spec("deepspeed") is None:
        pytest.skip("DeepSpeed is not installed: pip install deepspeed")
    cut = run(how, tmp_path, *TWO)
    whole = run("again", tmp_path)
    assert cut["share"] < 0.51
    moved = distance(whole["weights"], rolltree.load("nano").model.state_dict())
    assert moved > 0.1
    assert distance(cut["weights"], whole["weights"]) < 1e-4 * moved
    # Rollouts came from the weights of their step: what the engine said of each token is what the whole model says.
    assert max(whole["apart"]) < 1e-3, whole["apart"]
