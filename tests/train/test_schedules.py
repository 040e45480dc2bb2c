"""Schedules in the real trainer: old tokens are weighed, a killed run goes on, gaps are seen."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rolltree
from rolltree.control.schedule import ScheduleCorrection, preset
from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import Generation, Request, Sample
from rolltree.errors import RolltreeError
from rolltree.metrics.log import read_metrics
from rolltree.objective.decoupled import Decoupled
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Peer
from rolltree.recipe.registry import load_recipe
from rolltree.replay.buffer import Recall
from rolltree.testing.faulty import Wrapped
from rolltree.training.checkpoint import checkpoints
from rolltree.training.config import TrainError
from rolltree.training.learner import corrected
from rolltree.training.loop import RunEvent
from rolltree.training.start import Result
from rolltree.tree import Tree
from rolltree.tree.store.parquet import load
from tests.train.long import LONG, Tail, narrow
from tests.train.toy import KNOBS, Early, timeless, tiny_policy


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def run(out: Path, schedule: str, recipe: Any = "grpo", **more: Any) -> tuple[Result, list[tuple[Tree, ...]]]:
    seen: list[tuple[Tree, ...]] = []

    def listen(live: RunEvent) -> None:
        if live.kind == "trained":
            seen.append(live.trees)

    knobs = {"engine": narrow(), **LONG, "scheduler": schedule, "checkpoint_every": 0, **more}
    return rolltree.train(recipe, tiny_policy(), Tail(), out=out, listen=listen, **knobs), seen


def written(trees: tuple[Tree, ...]) -> list[Any]:
    return [(t.id, [(n.actions.tolist(), n.usage, n.scores.get("reward")) for n in t]) for t in trees]


@pytest.mark.papers("april")
def test_recalled_trees_teach_beside_those_of_a_schedule(tmp_path: Path) -> None:
    recipe = replace(load_recipe("grpo").build(), recall=Recall(share=0.5, window=1))
    plain, before = run(tmp_path / "plain", "", recipe, steps=5)
    for schedule in ("sync", "april", "verl"):
        done, seen = run(tmp_path / schedule, schedule, recipe, steps=5)
        assert [line.get("rollout/recalled_groups", 0) for line in done.metrics] == [0, 2, 2, 2, 2]
        assert [len([t for t in trees if t.leaves()[0].usage == "trained"]) for trees in seen] == [4, 2, 2, 2, 2]
        if schedule == "sync":
            assert [written(t) for t in before] == [written(t) for t in seen]
            for a, b in zip(plain.model.parameters(), done.model.parameters(), strict=True):
                assert torch.allclose(a, b, atol=1e-6)


def test_old_tokens_are_told_apart_and_weighed(tmp_path: Path) -> None:
    done, seen = run(tmp_path / "run", "areal", lr=1e-2)
    last = done.metrics[-1]
    assert 1 <= last["staleness/max"] <= 4
    assert last["policy/is_weight_max"] > 1.001, "the proximal policy is not the one that sampled"
    assert last["rollout/scheduled/trained"] == 7 * 4 * 8
    assert all(leaf.usage == "trained" for trees in seen for t in trees for leaf in t.leaves())
    assert all(line.get("rollout/running", 0) == 0 for line in done.metrics)
    under_way = last["rollout/under_way"] + last["rollout/scheduled/trained"]
    assert last["rollout/scheduled/submitted"] == under_way


@pytest.mark.papers("april")
def test_partials_are_carried_first_served_and_trained(tmp_path: Path) -> None:
    done, seen = run(tmp_path / "run", "april")
    lines = done.metrics
    assert max(line.get("rollout/partial", 0) for line in lines) > 0
    assert max(line.get("rollout/resumed", 0) for line in lines) > 0
    nodes = [n for trees in seen for t in trees for n in t if n.version is not None and len(n)]
    mixed = [n for n in nodes if len(set(n.version.tolist())) > 1]
    assert mixed, "rollouts that went on hold tokens of two versions"
    assert all((np.diff(n.version) >= 0).all() for n in mixed)
    assert all(line.get("policy/mismatch_max", 0.0) < 1e-4 for line in lines), (
        "what was resumed is scored as it was written"
    )
    assert all("rollout/slow_trained" in line for line in lines[2:])


@pytest.mark.papers("april")
def test_april_is_repeatable_on_the_embedded_engine(tmp_path: Path) -> None:
    runs = []
    for name in "ab":
        engine = LocalEngine(tiny_policy(), version=-1, max_batch=12, lockstep=True)
        recipe = load_recipe("april", group=4)
        runs.append(run(tmp_path / name, "", recipe=recipe, engine=engine, steps=4, eval_every=2))
    (one, seen), (two, again) = runs
    assert timeless(one.metrics) == timeless(two.metrics)
    assert [written(t) for t in seen] == [written(t) for t in again]
    assert max(line.get("rollout/resumed", 0.0) for line in one.metrics) > 0


@pytest.mark.papers("april", "dart")
@pytest.mark.parametrize("schedule", ["april", "dart"])
def test_killed_while_it_trains_and_resumed(tmp_path: Path, schedule: str) -> None:
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "tests.train.long", str(out), schedule]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == -9, done.stderr.decode()
    assert read_metrics(out / "metrics.jsonl")[-1]["step"] == 5
    saved = load(checkpoints(out / "checkpoints")[-1].path / "under-way" / "trees")
    before = [line for line in read_metrics(out / "metrics.jsonl") if line["step"] <= 4]
    again, seen = run(out, schedule, resume=True, checkpoint_every=2)
    lines = [line for line in again.metrics if line["kind"] == "train"]
    assert [line["step"] for line in lines] == [*range(1, 8)]
    assert lines[:4] == before
    assert lines[-1]["rollout/scheduled/trained"] == 7 * 4 * 8, "none lost, none trained twice"
    assert (
        lines[-1]["rollout/scheduled/submitted"]
        == sum(n for k, n in lines[-1].items() if k.startswith("rollout/scheduled/") and not k.endswith("submitted"))
        + lines[-1]["rollout/under_way"]
    )
    parts = [(n.actions, n.logp, n.version) for t in saved for n in t if n.status == "paused" and len(n)]
    assert parts, "rollouts were cut when the checkpoint was written"
    later = [n for trees in seen for t in trees for n in t if n.trainable]
    went_on = [p for p in parts if any(_begins(n, p) for n in later)]
    assert went_on, "what was cut went on from the very tokens it had"


def _begins(node: Any, part: tuple[Any, Any, Any]) -> bool:
    k = len(part[0])
    ours = (node.actions, node.logp, node.version)
    return len(node) > k and all(np.array_equal(a[:k], b) for a, b in zip(ours, part, strict=True))


class Told(Wrapped):
    """An engine whose samples are changed on their way."""

    def __init__(self, inner: LocalEngine, change: Callable[[Sample], Sample]) -> None:
        super().__init__(inner)
        self.change = change

    def submit(self, request: Request) -> Generation:
        return _Changed(self.inner.submit(request), self.change)  # type: ignore[return-value]


class _Changed:
    def __init__(self, run: Generation, change: Callable[[Sample], Sample]) -> None:
        self.run, self.change, self.stop = run, change, run.stop

    def __await__(self):  # pyright: ignore
        sample = yield from self.run.__await__()
        return self.change(sample)


def other_ids(sample: Sample) -> Sample:
    """As a tokenizer with another order of ids would have it."""
    return replace(sample, actions=np.where(sample.actions > 2, (sample.actions - 3 + 7) % 61 + 3, sample.actions))


@pytest.mark.parametrize("schedule", ["", "areal"])
@pytest.mark.parametrize(
    ("temperature", "change"), [(0.5, lambda s: replace(s, logp=s.sampling_logprob)), (1.0, other_ids)],
    ids=["temperature", "tokenizer"],
)  # fmt: skip
def test_an_engine_that_writes_another_policy_is_refused(tmp_path: Path, schedule: str, temperature, change) -> None:
    policy = tiny_policy()
    with torch.no_grad():
        for p in policy.model.parameters():
            p.mul_(4 if p.ndim > 1 else 1)  # a policy with opinions
    knobs = {**KNOBS, "steps": 3, "eval_every": 0, "scheduler": schedule, "temperature": temperature}
    engine = Told(LocalEngine(policy, version=-1), change)
    with pytest.raises(TrainError, match="does not write the policy in training"):
        rolltree.train("grpo", policy, Early(), out=tmp_path / "run", engine=engine, **knobs)
    honest = LocalEngine(policy, version=-1)
    done = rolltree.train("grpo", policy, Early(), out=tmp_path / "fine", engine=honest, **knobs)
    assert done.metrics[0].get("policy/mismatch_over", 0) == 0


def test_what_cannot_follow_a_schedule_is_refused_in_a_sentence(tmp_path: Path) -> None:
    grpo = load_recipe("grpo").build()
    for recipe, knobs, said in (
        ("grpo", {"scheduler": "arael"}, "did you mean 'areal'"),
        ("grpo", {"scheduler": "areal", "staleness": 2}, "staleness=2 and a schedule"),
        (replace(grpo, peers={"b": Peer()}), {"scheduler": "areal"}, "several policies"),
        (replace(grpo, recall=Recall()), {"scheduler": "areal"}, "recalls trees of earlier steps"),
    ):
        with pytest.raises(RolltreeError, match=said):
            run(tmp_path / "run", "", recipe, **knobs)
        assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_correction_becomes_part_of_the_objective_once() -> None:
    areal = preset("areal").correction
    plain = load_objective("clipped", clip_high=0.3)
    made = corrected(plain, areal)
    assert isinstance(made, Decoupled)
    assert (made.clip_low, made.clip_high, made.high) == (0.2, 0.3, 5.0)
    assert corrected(made, areal) is made
    assert corrected(plain, ScheduleCorrection()) is plain
    assert "sampled" in corrected(load_objective("gspo", kl=0.1), preset("verl").correction).needs
