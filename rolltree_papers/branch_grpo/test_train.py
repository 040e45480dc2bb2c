"""What `branch_grpo` promises beside what all of its kind do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rolltree.generate.branches import BranchError
from rolltree.latents.flow import load_flow
from rolltree.recipe.recipe import RecipeError
from rolltree.training.config import LoraKnobs, TrainError
from rolltree.training.start import train
from rolltree_papers.branch_grpo import BranchGrpo
from tests.latents.test_train import _config, _weights
from tests.latents.tiny import tiny_loaded

BRANCH = BranchGrpo(splits="0,2", first=2)


def test_a_resumed_run_is_the_whole_run(tmp_path: Path) -> None:
    whole = train(BRANCH, tiny_loaded(), "digits", out=tmp_path / "a", quiet=True, config=_config(steps=3))
    train(BRANCH, tiny_loaded(), "digits", out=tmp_path / "b", quiet=True, config=_config(steps=1))
    rest = train(BRANCH, tiny_loaded(), "digits", out=tmp_path / "b", quiet=True, resume=True, config=_config(steps=3))
    assert np.array_equal(_weights(whole.model), _weights(rest.model))
    saved = load_flow(sorted((tmp_path / "b" / "checkpoints").iterdir())[-1])
    assert np.array_equal(_weights(saved), _weights(rest.model))


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
