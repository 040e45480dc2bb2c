"""Whole runs on a toy task: every recipe learns, accounts add up, filters refill, runs stop in time."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import rolltree
from rolltree.errors import RolltreeError
from rolltree.filter.parts import Composite, Flawed
from rolltree.filter.vote import MajorityVote
from rolltree.generate.forced import Demonstrations
from rolltree.generate.independent import Independent
from rolltree.metrics.log import read_metrics
from rolltree.recipe.dapo import Dapo
from rolltree.recipe.registry import list_recipes, load_recipe
from rolltree.training.config import TrainConfig, TrainError
from rolltree.training.loop import RunEvent
from rolltree.tree.forest import assert_conserved
from rolltree.tree.store.parquet import load
from tests.train.toy import KNOBS, Early, tiny_policy

QUIET = {**KNOBS, "eval_every": 0, "checkpoint_every": 0, "forests_every": 0}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


READS = {"GraphSearch", "CodeTreeAnswers", "PopulationOfAnswers", "LabelChoice", "Staged"}
"""Strategies whose policy must read what earlier answers said."""


def learns_from_early(name: str) -> bool:
    """Not without an environment to talk to, and not from votes or parts of a verdict: this task has neither.

    Not by hints either, which give its first letter away, nor by effort, because all its answers are equally long.
    """
    parts = load_recipe(name).build()
    if "solution" in parts.control.needs or type(parts.control).__name__ == "EffortLevels":
        return False
    if isinstance(parts.strategy, Demonstrations) and not parts.strategy.rollouts:
        return False  # all its leaves are written answers, which are right from the first step
    if "end:task_reward" in getattr(parts.credit, "needs", ()):
        return False  # it asks for chained questions
    if type(parts.strategy).__name__ == "SlowThinking":
        return False  # what it answers wrong it answers again, which is mostly right from the first step
    reads = type(parts.strategy).__name__ in READS
    if reads or load_recipe(name).card.task == "digits":
        return False  # a policy that reads instructions, and one that writes latents (tests/latents)
    return "turns" not in parts.strategy.needs and not any(
        isinstance(s, (MajorityVote, Composite, Flawed)) for s in parts.shapers
    )


@pytest.mark.parametrize("name", [card.name for card in list_recipes() if learns_from_early(card.name)])
def test_every_recipe_learns(name: str, tmp_path: Path) -> None:
    knobs = {**QUIET, "steps": 25, "prompts": 8, "lr": 1e-2, "temperature": 1.0}
    if name == "areal":
        knobs["scheduler"] = "sync"  # its own schedule leaves few batches of the weights in training
    # Every answer of this task reaches its limit: a penalty for that would be most of a whitened advantage.
    # Its one token that matters is among a few tokens of like entropy.
    # Its first token decides, so that a plan is all there is to learn. Its context holds no long instruction.
    knobs_of = {
        "treepo": {"overlong": False}, "d3s": {"tokens": 0.6}, "mssr": {"group": 8}, "remax": {"group": 4},
        "himac": {"phase": "macro"}, "maxs": {"answers": 4, "ahead": 1}, "brorl": {"group": 16},
        "ppo_million": {"most": 40}, "adadagrad": {"most": 16},
        "arise": {"conclude": ""}, "a2fm": {"tags": ()}, "brpo": {"judge": "measured"},
    }  # fmt: skip
    recipe = load_recipe(name, **knobs_of.get(name, {}))
    metrics = rolltree.train(recipe, tiny_policy(), Early(), out=tmp_path / "run", **knobs).metrics
    solved = [line["reward/solved"] for line in metrics]
    assert np.mean(solved[:2]) < 0.7
    assert np.mean(solved[-5:]) > np.mean(solved[:2]) + 0.2
    updated = [line for line in metrics if line["budget/trained"]]
    assert len(updated) > 15
    compared = [line for line in updated if "policy/mismatch_max" in line]  # a batch may be all of earlier weights
    assert len(compared) > 5
    assert all(line["policy/mismatch_max"] < 1e-4 for line in compared), (
        "engine and trainer must compute the same policy"
    )


def test_a_run_folder_tells_what_happened(tmp_path: Path) -> None:
    run = rolltree.train("grpo", tiny_policy(), Early(), out=tmp_path / "run", **{**KNOBS, "quiet": False})
    names = {p.name for p in run.path.iterdir()}
    assert names == {
        "README.md",
        "acted.json",
        "config.json",
        "prompt.json",
        "metrics.jsonl",
        "metrics.parquet",
        "forests",
        "checkpoints",
        "log.txt",
    }
    config = json.loads((run.path / "config.json").read_text())
    assert config["train"]["optim"]["lr"] == KNOBS["lr"]
    assert config["ran_on"]["versions"]["torch"] == torch.__version__
    assert {p.name for p in (run.path / "checkpoints").iterdir()} == {"step-000004", "step-000006"}
    assert [line["step"] for line in run.metrics if line["kind"] == "eval"] == [0, 3, 6]
    assert "step 6/6" in (run.path / "log.txt").read_text()
    forest = load(run.path / "forests" / "step=3")
    line = next(x for x in run.metrics if x["kind"] == "train" and x["step"] == 3)
    assert line["rollout/submitted"] == sum(len(t.leaves()) for t in forest) == line["rollout/trained"]
    assert assert_conserved(forest, settled=True).trained == line["rollout/trained"]
    decoded = sum(len(n) for t in forest for n in t if n.trainable)
    assert line["budget/decoded"] == decoded
    gains = [float(n.gain.sum()) for t in forest for n in t if n.gain is not None]
    assert any(g > 0 for g in gains)


def test_versions_of_tokens_follow_the_steps(tmp_path: Path) -> None:
    seen: list[set[int]] = []

    def listen(live: RunEvent) -> None:
        if live.kind == "grown":
            seen.append({int(v) for t in live.trees for n in t if n.version is not None for v in n.version})

    rolltree.train("grpo", tiny_policy(), Early(), out=tmp_path / "run", listen=listen, **{**QUIET, "steps": 3})
    assert seen == [{0}, {1}, {2}]


def test_dynamic_sampling_refills_and_accounts_for_what_it_drops(tmp_path: Path) -> None:
    kept: list[tuple[int, int, bool]] = []

    def listen(live: RunEvent) -> None:
        if live.kind == "trained":
            flat = [t for t in live.trees if len({leaf.scores["reward"] for leaf in t.leaves()}) == 1]
            trained = [t for t in live.trees if any(leaf.usage == "trained" for leaf in t.leaves())]
            kept.append((len(trained), len(flat), bool({t.id for t in flat} & {t.id for t in trained})))

    recipe = Dapo(group=2, overlong=False, rounds=6)
    run = rolltree.train(recipe, tiny_policy(), Early(), out=tmp_path / "run", listen=listen, **{**QUIET, "steps": 4})
    assert all(trained == KNOBS["prompts"] and not mixed for trained, _, mixed in kept)
    assert any(flat > 0 for _, flat, _ in kept)
    for line in run.metrics:
        assert line["rollout/submitted"] == line["rollout/trained"] + line.get("rollout/dropped", 0)
        assert line["rollout/trained"] == 2 * KNOBS["prompts"]
        assert line["policy/zero_advantage"] == 0
    assert max(line["rollout/rounds"] for line in run.metrics) > 1


def test_a_step_without_anything_to_teach_changes_nothing(tmp_path: Path) -> None:
    run = rolltree.train(
        Dapo(rounds=2), tiny_policy(), Early(sunny=True), out=tmp_path / "run", **{**QUIET, "steps": 2}
    )
    for line in run.metrics:
        assert line["rollout/rounds"] == 2
        assert line["budget/trained"] == 0
        assert line["rollout/dropped/all outcomes are 1"] == line["rollout/submitted"]
    for a, b in zip(run.model.parameters(), tiny_policy().model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_run_stops_at_its_token_budget(tmp_path: Path) -> None:
    run = rolltree.train("grpo", tiny_policy(), Early(), out=tmp_path / "run", decoded=300, **{**QUIET, "steps": 50})
    spent = [line["budget/decoded_total"] for line in run.metrics]
    assert spent[-2] < 300 <= spent[-1]
    assert "300" in run.why


def test_divergence_stops_the_run_and_keeps_the_batch(tmp_path: Path) -> None:
    out = tmp_path / "run"

    class Poisoned(Early):
        async def verify(self, item, state, text):  # pyright: ignore
            from rolltree.task.protocol import Verdict

            return Verdict(float(len(text)) * 1e30)

    with pytest.raises(TrainError, match=r"step 1 diverged.*offending/step-000001"):
        rolltree.train("rloo", tiny_policy(), Poisoned(), out=out, **QUIET)
    place = out / "offending" / "step-000001"
    batch = np.load(place / "batch.npz")
    assert np.abs(batch["gain"]).max() > 1e20
    assert 1 <= len(load(place)) <= KNOBS["prompts"]
    assert set(batch.files) >= {"actions", "action", "gain", "loss", "weight", "engine", "sampled", "version"}
    assert read_metrics(out / "metrics.jsonl") == []
    assert "diverged" in (out / "log.txt").read_text()
    assert not (out / "in-use.json").exists()


def test_bad_input_is_refused_before_the_first_token(tmp_path: Path) -> None:
    for call, said in (
        (lambda: rolltree.train("grpp", tiny_policy(), Early(), out=tmp_path / "a"), "did you mean 'grpo'"),
        (lambda: rolltree.train("grpo", tiny_policy(), Early(), out=tmp_path / "a", stepps=3), "did you mean 'steps'"),
        (lambda: rolltree.train("grpo", tiny_policy(), Early(), out=tmp_path / "a", lr=0.0), "optim.lr=0.0"),
        (
            lambda: rolltree.train("grpo", tiny_policy(), Early(), out=tmp_path / "a", trackers=("wandbb",)),
            "no tracker",
        ),
        (lambda: TrainConfig(prompts=0), "prompts=0"),
    ):
        with pytest.raises(RolltreeError, match=said):
            call()
    assert not (tmp_path / "a" / "metrics.jsonl").exists()


def test_growing_without_training_is_reproducible() -> None:
    a, b = (rolltree.grow("grpo", tiny_policy(), Early(), items=2, seed=3) for _ in range(2))
    assert [n.actions.tolist() for _, n in a.nodes()] == [n.actions.tolist() for _, n in b.nodes()]
    assert len(list(a.leaves())) == 16


def test_a_bare_strategy_grows_as_its_recipe_does() -> None:
    bare, named = (rolltree.grow(what, tiny_policy(), Early(), items=2, seed=3) for what in (Independent(8), "grpo"))
    assert [[n.actions.tolist() for n in t] for t in bare] == [[n.actions.tolist() for n in t] for t in named]
