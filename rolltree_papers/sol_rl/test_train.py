"""What `sol_rl` promises beside what all of its kind do."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rolltree.training.start import train
from rolltree_papers.sol_rl import SolRl
from tests.latents.test_train import _config, _weights
from tests.latents.tiny import tiny_loaded


def test_a_resumed_run_with_a_coarse_copy_is_the_whole_run(tmp_path: Path) -> None:
    recipe = SolRl(explore=6, keep=4)
    whole = train(recipe, tiny_loaded(), "digits", out=tmp_path / "a", quiet=True, config=_config(steps=3))
    train(recipe, tiny_loaded(), "digits", out=tmp_path / "b", quiet=True, config=_config(steps=1))
    rest = train(recipe, tiny_loaded(), "digits", out=tmp_path / "b", quiet=True, resume=True, config=_config(steps=3))
    assert np.array_equal(_weights(whole.model), _weights(rest.model))
