"""What `branch_grpo` promises beside what all of its kind do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rolltree.latents.task import Digits
from rolltree.training.config import TrainConfig
from rolltree.training.start import train
from rolltree_papers.branch_grpo import BranchGrpo
from tests.latents.test_diffusers import tiny


class Flat(Digits):
    """Digits of a latent with one channel."""

    async def verify(self, item: Any, state: Any, text: Any) -> Any:
        return await super().verify(item, state, np.asarray(text)[0])


def test_it_trains(tmp_path: Path) -> None:
    loaded = tiny()
    config = TrainConfig(steps=1, prompts=2, eval_every=0, forests_every=0)
    result = train(BranchGrpo("0,2", first=1), loaded, Flat(), out=tmp_path / "run", quiet=True, config=config)
    assert result.last("train")["policy/mismatch_max"] < 1e-2
    assert (tmp_path / "run" / "checkpoints" / "step-000001" / "config.json").is_file()
