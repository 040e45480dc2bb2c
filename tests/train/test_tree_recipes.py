"""Recipes that need an environment or vote on their own labels, trained for a few real steps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rolltree
from rolltree.recipe.registry import load_recipe
from rolltree.task.protocol import Item, Verdict
from tests.train.toy import Early, Talk, tiny_policy

KNOBS: dict[str, Any] = {
    "steps": 3, "prompts": 3, "lr": 1e-3, "eval_every": 0, "checkpoint_every": 0, "forests_every": 0, "quiet": True,
}  # fmt: skip


@dataclass(frozen=True)
class Voted(Early):
    """The answer is whether the text begins early: something that leaves can agree on."""

    async def verify(self, item: Item, state: object, text: str) -> Verdict:
        verdict = await super().verify(item, state, text)
        return Verdict(verdict.score, answer=str(verdict.score))


CASES: list[tuple[str, dict[str, Any], Early]] = [
    ("arpo", {"leaves": 6, "first": 3}, Talk()),
    ("arpo", {"leaves": 6, "first": 3, "credit": "hard"}, Talk()),
    ("aepo", {"leaves": 6, "first": 3}, Talk()),
    ("treepo", {"leaves": 6, "segment": 3}, Talk()),
    ("treeps_rag", {"leaves": 6, "ways": 3, "width": 2}, Talk()),
    ("cleaner", {"group": 6}, Talk()),
    ("reex_sql", {"group": 6, "exact": 0, "entities": 0}, Talk()),
    ("poly_ppo", {"rollouts": 3, "vines": 3, "size": 2}, Talk()),
    ("latr", {"leaves": 6, "share": 0.5, "absolute": 0.01, "relative": 0.5, "ages": (3,), "chunk": 4}, Talk()),
    ("ettrl", {"stems": 2}, Voted()),
    ("mars2", {"nodes": 4, "again": "{answer}="}, Voted()),
    ("mars2", {"nodes": 4, "again": "=", "train_peer": False}, Voted()),
    ("ets", {"width": 4, "step": 2, "delimiter": ""}, Voted()),
    ("treepo", {"leaves": 8, "segment": 2, "fill": "glued"}, Voted()),
    ("rose", {"leaves": 8, "top": 5, "values": "position"}, Voted()),
    ("echo", {"leaves": 6, "stems": 3, "entropy": 0.87, "confidence": 0.95, "rise": 0.001, "chunk": 2}, Voted()),
]


@pytest.mark.papers(
    "aepo", "arpo", "cleaner", "echo", "ets", "ettrl", "latr", "mars2", "poly_ppo", "reex_sql", "rose", "treeps_rag"
)
@pytest.mark.parametrize(("name", "knobs", "task"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_a_few_real_steps(name: str, knobs: dict[str, Any], task: Early, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    recipe = load_recipe(name, **knobs)
    lines = rolltree.train(recipe, tiny_policy(), task, out=tmp_path / "run", **KNOBS).metrics
    steps = [line for line in lines if line["kind"] == "train"]
    assert len(steps) == 3
    trained = [line for line in steps if line["budget/trained"]]
    assert trained
    for line in trained:
        assert np.isfinite(line["optim/loss"])
        assert line["policy/mismatch_max"] < 1e-4, (
            "what the engine reported is what the trainer computes, forced and spliced too"
        )
    assert {"rollout/unique", "rollout/sharing", "rollout/depth"} <= steps[0].keys()
