"""What `flow_grpo` promises beside what all of its kind do."""

from __future__ import annotations

from pathlib import Path

from rolltree.training.start import train
from rolltree_papers.flow_grpo import FlowGrpo
from tests.latents.test_train import _config
from tests.latents.tiny import tiny_loaded


def test_a_penalty_keeps_a_reference_and_a_window_may_move(tmp_path: Path) -> None:
    recipe = FlowGrpo(group=4, kl=0.1)
    result = train(recipe, tiny_loaded(), "digits", out=tmp_path / "run", quiet=True, config=_config())
    assert "policy/kl_reference" in result.last("train") or any("kl" in name for name in result.last("train"))
