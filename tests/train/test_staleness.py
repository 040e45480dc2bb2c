"""Batches that wait: their lag, what an interrupted run keeps of them, and past trees that teach again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rolltree
from rolltree.recipe.recipe import Parts
from rolltree.recipe.registry import load_recipe
from rolltree.replay.buffer import Recall
from rolltree.task.protocol import Item, Verdict
from rolltree.training.config import TrainError
from rolltree.training.loop import RunEvent
from tests.train.toy import KNOBS, Early, timeless, tiny_policy

QUIET = {**KNOBS, "eval_every": 0, "checkpoint_every": 0, "forests_every": 0}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def run(recipe: Any, out: Path, **knobs: Any) -> Any:
    return rolltree.train(recipe, tiny_policy(), Early(), out=out, **{**QUIET, **knobs})


def recalling(**knobs: Any) -> Parts:
    return replace(load_recipe("grpo").build(), recall=Recall(**knobs))


def test_batches_are_trained_so_many_versions_late(tmp_path: Path) -> None:
    trained: list[set[int]] = []
    grown: list[int] = []

    def listen(live: RunEvent) -> None:
        if live.kind == "grown":
            grown.append(len(live.trees))
        elif live.kind == "trained":
            trained.append({int(v) for t in live.trees for n in t if n.version is not None for v in n.version})

    done = run("grpo", tmp_path / "run", staleness=2, steps=5, listen=listen)
    assert trained == [{0}, {0}, {0}, {1}, {2}]
    assert grown == [3 * KNOBS["prompts"], *[KNOBS["prompts"]] * 4]
    assert [line["staleness/max"] for line in done.metrics] == [0, 1, 2, 2, 2]
    for line in done.metrics:
        assert line["rollout/submitted"] == line["rollout/trained"] + line.get("rollout/dropped", 0)
        assert line.get("rollout/waiting", 0) == 2 * 8 * KNOBS["prompts"]
        assert ("policy/mismatch_max" in line) == (line["staleness/max"] == 0), (
            "only actions of this version can be compared"
        )


def test_the_same_rollouts_wait_or_do_not(tmp_path: Path) -> None:
    """The first batch is the one a run without staleness starts with, and gives the same update."""
    first = run("grpo", tmp_path / "now", steps=1)
    late = run("grpo", tmp_path / "late", steps=1, staleness=3)
    for a, b in zip(first.model.parameters(), late.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("parts", [None, recalling(share=0.5, window=2)], ids=["waiting", "waiting and past"])
def test_what_waits_survives_an_interruption(tmp_path: Path, parts: Parts | None) -> None:
    recipe: Any = parts or "gspo"
    knobs = {"staleness": 2, "checkpoint_every": 2, "steps": 6}
    whole = run(recipe, tmp_path / "whole", **knobs)
    run(recipe, tmp_path / "parts", **{**knobs, "steps": 4})
    again = run(recipe, tmp_path / "parts", resume=True, **knobs)
    assert timeless(again.metrics) == timeless(whole.metrics)
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.papers("remix")
def test_recalled_trees_teach_beside_fresh_ones(tmp_path: Path) -> None:
    remix = load_recipe("remix", share=0.5, window=1, phase="mixed, fresh at 4")
    done = run(remix, tmp_path / "run", steps=6)
    fresh = [line["rollout/submitted"] / 8 for line in done.metrics]
    assert fresh == [4, 2, 2, 2, 4, 4]
    assert [line.get("rollout/recalled_groups", 0) for line in done.metrics] == [0, 2, 2, 2, 0, 0]
    assert all((line["staleness/mean"] > 0) == (line.get("rollout/recalled_groups", 0) > 0) for line in done.metrics)


@dataclass(frozen=True)
class Dusk(Early):
    """Mixed for the first batch, and solved by every rollout from then on."""

    mixed: int = 32
    asked: list[int] = field(default_factory=list[int])

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        self.asked.append(1)
        return Verdict(float(len(self.asked) > self.mixed or len(self.asked) % 2))


def test_a_batch_that_waited_recalls_no_more_than_there_still_is(tmp_path: Path) -> None:
    """When the third batch was grown two trees could be recalled; when it is trained the past holds none."""
    parts = recalling(share=0.5, window=1, informative=True)
    done = rolltree.train(parts, tiny_policy(), Dusk(), out=tmp_path / "run", **{**QUIET, "staleness": 1, "steps": 4})
    assert [line.get("rollout/recalled_groups", 0) for line in done.metrics] == [0, 0, 0, 0]


def test_importance_weights_see_how_stale_a_batch_is(tmp_path: Path) -> None:
    """The log-probs that were sampled with wait with their batch."""
    parts = load_recipe("grpo").build()
    from rolltree.objective.registry import load_objective

    weighed = replace(parts, objective=load_objective("clipped", correction="sequence_tis"))
    fresh = run(weighed, tmp_path / "fresh", steps=5, lr=1e-2)
    stale = run(weighed, tmp_path / "stale", steps=5, lr=1e-2, staleness=3)
    assert all(abs(line["policy/is_weight_max"] - 1) < 1e-3 for line in fresh.metrics)
    assert stale.metrics[0]["policy/is_weight_max"] == pytest.approx(1, abs=1e-3)
    assert stale.metrics[-1]["policy/is_weight_max"] > 1.1
    assert np.isfinite([line["optim/loss"] for line in stale.metrics]).all()


def test_a_negative_wait_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="staleness=-1"):
        run("grpo", tmp_path / "run", staleness=-1)


@pytest.mark.papers("dots")
def test_dots_replays_whole_groups_as_they_were_sampled(tmp_path: Path) -> None:
    """Half of a batch are groups of the last two steps that had variance, with the versions they were written under."""
    parts = replace(load_recipe("dots", group=4, pool=8, references=2).build())
    seen: list[set[int]] = []

    def listen(live: RunEvent) -> None:
        if live.kind == "grown":
            seen.append({len(t.leaves()) for t in live.trees})

    done = run(parts, tmp_path / "run", steps=6, listen=listen)
    assert all(sizes == {4} for sizes in seen)
    lines = [line for line in done.metrics if line["kind"] == "train"]
    assert lines[0].get("rollout/recalled_groups", 0) == 0
    assert max(line.get("rollout/recalled_groups", 0) for line in lines) == KNOBS["prompts"] / 2
    for line in lines:
        assert line["budget/groups"] == KNOBS["prompts"] - line.get("rollout/recalled_groups", 0)
        assert line["staleness/max"] <= 2
        assert (line["staleness/max"] > 0) == (line.get("rollout/recalled_groups", 0) > 0)
    assert any("weight" in key or "ratio" in key for key in lines[-1])


@pytest.mark.papers("guide")
def test_an_arm_that_only_some_batches_need_is_told_with_all(tmp_path: Path) -> None:
    """Of the four batches before the first update some have prompts that fail altogether and get a hint."""
    done = rolltree.train(
        "guide", "nano", "arithmetic?level=3", out=tmp_path / "run", seed=1, staleness=3, steps=3, prompts=2,
        quiet=True, eval_every=0, checkpoint_every=0, forests_every=0,
    )  # fmt: skip
    assert done.metrics[0]["budget/arm/plain"] == 16
    assert "budget/arm/guided" in done.metrics[0]
