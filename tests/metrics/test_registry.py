"""What training emits is registered, and what is registered some run emits."""

from __future__ import annotations

import importlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rolltree
from rolltree.cluster import Health
from rolltree.compare.names import COMPARED, PER_LEAF, is_share, less_is_better, row_name
from rolltree.control.ledger import Budget
from rolltree.errors import RolltreeError
from rolltree.filter.vote import MajorityVote
from rolltree.metrics.catalogue import METRICS
from rolltree.metrics.metric import GROUPS
from rolltree.metrics.registry import find, metric_of, reference, value_in, without_zeros
from rolltree.metrics.rollouts import Rollouts
from rolltree.metrics.step import FROM_FORESTS, GROWN, TRAINED
from rolltree.objective.registry import load_objective
from rolltree.recipe.registry import load_recipe
from rolltree.rollout.underway import Underway
from rolltree.training import loop
from rolltree.training.evaluate import summary
from rolltree.training.loop import RunTotals
from rolltree.tree import Forest, Tree
from rolltree.tree.table import table
from tests.doctor.planted import group
from tests.train.toy import Early, Talk, tiny_policy

CASES: dict[str, dict[str, Any]] = {
    name: {} for name in (
        "treeps_rag", "arrol", "vcpo", "self_pretraining", "soft_sapo", "hiper", "minpro", "bapo", "m2po", "kl_cov",
        "remix", "gpg", "masa", "adhint", "hapo", "otr", "mars2", "mssr", "scope", "adadagrad",
    )
} | {"grpo": {"scheduler": "areal"}, "arpo": {"scheduler": "sync"}}  # fmt: skip


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of everything that some short runs measured, zeros that are not written included."""
    names: set[str] = set()

    def recorded(numbers: dict[str, float]) -> dict[str, float]:
        names.update(numbers)
        return without_zeros(numbers)

    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "without_zeros", recorded)
        for name, config in CASES.items():
            recipe = load_recipe(name, **{"hiper": {"subgoals": "paid"}}.get(name, {}))
            task = Talk() if "turns" in recipe.build().strategy.needs else Early()
            steps = {"arpo": 2, "remix": 3, "arrol": 2}.get(name, 1)
            knobs = {"prompts": 4, "eval_items": 2, "eval_samples": 2, "forests_every": 0, "checkpoint_every": 0}
            out = tmp_path_factory.mktemp("runs") / name
            done = rolltree.train(
                recipe, tiny_policy(), task, out=out, quiet=True, steps=steps, eval_every=steps, **knobs, **config
            )
            names.update(k for line in done.metrics for k in line)
        shy = replace(load_recipe("grpo").build(), objective=load_objective("clipped", entropy_bonus=0.01))
        rolltree.train(
            shy, tiny_policy(), Early(), out=tmp_path_factory.mktemp("e") / "r", quiet=True, steps=1, prompts=2
        )
    return names - {"kind", "step"}


def odd() -> list[Tree]:
    """Trees with what short runs do not meet: failures by cause, votes, replayed and partial rollouts."""
    vote, lost, old = group("vote", [0, 0, 1]), group("lost", [1, 0]), group("old", [1, 0])
    for leaf, answer in zip(vote.leaves(), ("4", "4", "5"), strict=True):
        leaf.usage, leaf.notes["answer"] = "", answer
        leaf.scores["judge"] = {"4": 0.2, "5": 0.9}[answer]
    MajorityVote()(vote, 8)
    vote.root.scores |= {"first_wave": 0.5, "last_wave": 0.5}
    lost.graft(0, old, 1)
    leaf = lost.extend(0, [4, 4])
    lost.close(leaf, "failed", "error", "the verifier: ValueError: boom")
    lost.extend(0, [4, 4], status="paused", version=np.array([1, 2], np.int32))
    return [vote, lost]


@pytest.mark.papers(
    "adadagrad",
    "adhint",
    "arpo",
    "arrol",
    "bapo",
    "hapo",
    "hiper",
    "m2po",
    "mars2",
    "masa",
    "minpro",
    "mssr",
    "otr",
    "remix",
    "scope",
    "self_pretraining",
    "treeps_rag",
    "vcpo",
)
def test_every_number_that_is_emitted_is_registered(emitted: set[str]) -> None:
    assert sorted(name for name in emitted if find(name) is None or metric_of(name).own) == []


@pytest.mark.papers(
    "adadagrad",
    "adhint",
    "arpo",
    "arrol",
    "bapo",
    "hapo",
    "hiper",
    "m2po",
    "mars2",
    "masa",
    "minpro",
    "mssr",
    "otr",
    "remix",
    "scope",
    "self_pretraining",
    "treeps_rag",
    "vcpo",
)
def test_every_registered_metric_is_emitted(emitted: set[str]) -> None:
    families = [family for part in (GROWN, TRAINED, FROM_FORESTS) for family in part]
    found = {name for family in families for name in family(Rollouts(table(odd())))}
    seen, spent = Underway(4), Budget()
    spent.for_role("judge")
    seen.recent.extend([(1, True), (1, True), (1, False), (9, True)])
    found |= set(seen._slow([]))  # pyright: ignore[reportPrivateUsage]
    judged = Forest()
    judged.plant("t", [1]).extend(0, [2], status="done").scores.update(reward=1.0, form=0.5)
    found |= set(summary(judged, 1))
    # Files of items are gone through again and again; the toy tasks never end (tests/cli/test_data.py reads it).
    found |= emitted | {"budget/epoch"} | set(PER_LEAF) | set(RunTotals().add(spent))
    found |= set(Health(1, 0, 1, 0, 0, 0, 0, 0, (), (), not_handed={"late": 1}).numbers)
    met = {metric_of(name).name for name in found}
    assert sorted(m.name for m in METRICS if m.name not in met and not m.own) == []


def test_metrics_say_what_they_are() -> None:
    names = Counter(m.name for m in METRICS)
    assert names.most_common(1)[0][1] == 1
    for metric in METRICS:
        assert metric.group in GROUPS
        assert metric.about[0].isupper() or metric.about[0].isdigit()
        assert metric.about.endswith(".")
        found: Any = importlib.import_module(metric.module)
        for part in metric.function.split("."):
            assert hasattr(found, part), f"{metric.name} is said to be computed by {metric.where}"
            found = getattr(found, part)


def test_a_name_is_found_whole_by_pattern_and_under_an_actor() -> None:
    assert metric_of("policy/kl_reference").name == "policy/kl_<anchor>"
    assert metric_of("policy/kl_selected").name == "policy/kl_selected"
    assert metric_of("peer/optim/loss").name == "optim/loss"
    assert metric_of("policy/my_number").own
    assert find("reward/part/") is None
    with pytest.raises(RolltreeError, match="did you mean 'reward/solved'"):
        metric_of("reward/solvd")


def test_what_is_left_out_of_a_whole_line_was_zero() -> None:
    line = {"kind": "train", "step": 1, **without_zeros({"rollout/submitted": 8.0, "rollout/retries": 0.0})}
    assert "rollout/retries" not in line
    assert value_in(line, "rollout/retries") == 0.0
    assert value_in(line, "reward/mean") is None, "what no line leaves out was not measured"
    assert value_in({"kind": "train", "step": 1}, "rollout/retries") is None, "another program's line says nothing"


@pytest.mark.papers(
    "adadagrad",
    "adhint",
    "arpo",
    "arrol",
    "bapo",
    "hapo",
    "hiper",
    "m2po",
    "mars2",
    "masa",
    "minpro",
    "mssr",
    "otr",
    "remix",
    "scope",
    "self_pretraining",
    "treeps_rag",
    "vcpo",
)
def test_comparisons_know_which_way_is_better() -> None:
    assert all(metric_of(name).name == name for name in (*COMPARED, *PER_LEAF))
    assert {name for name in (*COMPARED, *PER_LEAF) if less_is_better(name)} == {
        "reward/zero_variance", "rollout/truncated", "rollout/failed", *PER_LEAF,
    }  # fmt: skip
    assert is_share("zero_variance")
    assert not is_share("failed")
    assert row_name("pass@8") == "eval/pass@8"


def test_the_page_of_metrics_is_that_of_the_registry() -> None:
    page = Path(__file__).parents[2] / "docs" / "metrics.md"
    assert page.read_text(encoding="utf-8") == reference(), "run python -m rolltree.metrics.registry"
