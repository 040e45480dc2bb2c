"""What the trainer writes for credits: the reference's log-probs, a critic's values; both survive a resume."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import rolltree
from rolltree.credit.advantage import Advantage
from rolltree.credit.baselines import BetaStore
from rolltree.credit.registry import load_credit
from rolltree.policy.language import LanguagePolicy
from rolltree.recipe.registry import load_recipe
from rolltree.replay.buffer import Recall
from rolltree.testing.forests import episodes
from rolltree.training.backward import DivergedError
from rolltree.training.config import Optim
from rolltree.training.loop import RunEvent
from rolltree.training.readings import Critic, make_readings
from rolltree.tree import Tree
from rolltree.tree.table import Table, table
from tests.train.toy import KNOBS, Early, timeless, tiny_policy


class Needing:
    """A credit by its needs."""

    def __init__(self, needs: Iterable[str]) -> None:
        self.needs = frozenset(needs)

    def __call__(self, table: Table) -> Advantage:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_values_and_reference_stand_on_what_can_teach_and_nowhere_else() -> None:
    trees = episodes(np.random.default_rng(0))
    lost = trees[0].leaves()[-1]
    lost.status = "failed"
    for tree in trees:
        for node in tree:
            node.notes.pop("value", None)
            node.notes.pop("reference", None)
            node.scores.pop("value_low", None)
    view = table(trees)
    model = tiny_policy().model
    readings = make_readings(Needing({"action:reference", "action:value", "turn:value_low"}), model, Optim())
    readings.write(view, 16, LanguagePolicy(model))
    one_batch = make_readings(Needing(readings.needs), model, Optim())
    for tree in trees:
        for node in tree:
            if not node.trainable or node is lost:
                assert "reference" not in node.notes or np.isnan(node.notes["reference"]).any()
                continue
            with torch.no_grad():
                logits = model(torch.from_numpy(tree.prefix(node)[None].astype(np.int64))).logits[0].log_softmax(-1)
            start = len(tree.prefix(node)) - len(node)
            expected = [float(logits[start + i - 1, int(a)]) for i, a in enumerate(node.actions)]
            assert node.notes["reference"] == pytest.approx(expected, abs=1e-4)
            assert node.notes["value"].tolist() == [0.0] * len(node)
            assert node.scores["value_low"] == 0.0
    kept = {(t.id, n.id): n.notes["reference"] for t in trees for n in t if "reference" in n.notes}
    one_batch.write(view, 10_000, LanguagePolicy(model))
    for (tree_id, node_id), before in kept.items():
        tree = next(t for t in trees if t.id == tree_id)
        np.testing.assert_allclose(tree[node_id].notes["reference"], before, atol=1e-5)


def test_a_prior_is_read_before_its_outcome_is_told_and_never_overwrites_one() -> None:
    trees = [Tree("a", [1], item="x"), Tree("b", [1], item="y")]
    for tree, reward in zip(trees, (1.0, 0.0), strict=True):
        tree.extend(0, [2], status="done", scores={"reward": reward})
    trees[1].root.scores["prior"] = 0.3
    readings = make_readings(Needing({"root:prior"}), tiny_policy().model, Optim())
    readings.write(table(trees), 16, tiny_policy())
    assert [t.root.scores["prior"] for t in trees] == [0.5, 0.3]
    readings.learn(table(trees), 16)
    again = make_readings(Needing(readings.needs), tiny_policy().model, Optim())
    again.load_state_dict(readings.state_dict())
    for tree in trees:
        tree.root.scores.clear()
    again.write(table(trees), 16, tiny_policy())
    assert trees[0].root.scores["prior"] > 0.5 > trees[1].root.scores["prior"]


def test_what_an_assisted_arm_solved_is_no_success_of_the_prompt() -> None:
    tree = Tree("a", [1], item="x")
    tree.extend(0, [2], status="done", scores={"reward": 0.0})
    for arm in ("guided", "hint", "meta"):
        tree.extend(0, [3], status="done", scores={"reward": 1.0}, notes={"arm": arm})
    readings = make_readings(Needing({"root:prior"}), tiny_policy().model, Optim())
    readings.learn(table([tree]), 16)
    alone = BetaStore()
    alone.update("x", success=False)
    assert readings.priors is not None
    assert readings.priors.counts == alone.counts


def test_an_outcome_that_comes_back_is_counted_once(tmp_path: Path) -> None:
    """A success rate remembers as many outcomes of a prompt as were sampled, however often its tree teaches."""
    expected = BetaStore()

    def listen(live: RunEvent) -> None:
        if live.kind == "grown":
            for tree in live.trees:
                for leaf in tree.leaves():
                    expected.update(tree.item, leaf.scores["reward"] > 0.5)
        if live.kind == "trained":
            expected.move(live.numbers["optim/prior_moved"])

    recipe = replace(load_recipe("grpo").build(), credit=load_credit("prior_baseline"), recall=Recall(0.5, 1))
    knobs = {**KNOBS, "steps": 3, "eval_every": 0, "checkpoint_every": 3}
    rolltree.train(recipe, tiny_policy(), Early(), out=tmp_path / "run", listen=listen, **knobs)
    state = torch.load(next((tmp_path / "run").rglob("training.pt")), map_location="cpu", weights_only=True)
    held = state["readings"]["priors"]
    assert {item: sum(counts) for item, counts in held.items()} == pytest.approx(
        {item: sum(counts) for item, counts in expected.counts.items()}
    )


@pytest.mark.papers("mssr")
def test_the_memory_forgets_faster_the_further_the_policy_moves(tmp_path: Path) -> None:
    """ρ stood at 0.96 whatever happened: nobody told the store how far the policy had moved."""
    told = {}
    for lr in (1e-6, 3e-2):
        run = rolltree.train(
            "mssr", tiny_policy(), Early(), out=tmp_path / str(lr), **{**KNOBS, "eval_every": 0, "lr": lr}
        )
        told[lr] = run.last("train")
    assert told[1e-6]["optim/prior_forgetting"] == pytest.approx(0.96, abs=1e-3)
    assert 0 <= told[1e-6]["optim/prior_moved"] < 1e-4
    assert told[3e-2]["optim/prior_moved"] > 1e-3
    assert 0.875 - 1e-9 <= told[3e-2]["optim/prior_forgetting"] < 0.955


def test_a_critic_whose_loss_is_no_number_stops_the_run_and_learns_nothing() -> None:
    view = table(episodes(np.random.default_rng(1)))
    critic = Critic(tiny_policy().model, Optim())
    with torch.no_grad():
        critic.head.bias.fill_(torch.nan)
    before = [p.detach().clone() for p in critic.trunk.parameters()]
    with pytest.raises(DivergedError, match="the critic's loss is nan") as stopped:
        critic.learn(view, 64)
    assert stopped.value.trees == list(view.trees)
    assert all(torch.equal(a, b) for a, b in zip(before, critic.trunk.parameters(), strict=True))


def test_a_critic_learns_the_returns_it_is_shown_and_leaves_the_policy_alone() -> None:
    view = table(episodes(np.random.default_rng(1)))
    model = tiny_policy().model
    before = [p.detach().clone() for p in model.parameters()]
    critic = Critic(model, Optim(lr=1e-2))
    told = [critic.learn(view, 64) for _ in range(40)]
    assert told[-1]["optim/critic_loss"] < 0.5 * told[0]["optim/critic_loss"]
    assert told[-1]["optim/critic_explained"] > 0.3
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    whole, parts = Critic(model, Optim()), Critic(model, Optim())
    assert whole.learn(view, 10_000)["optim/critic_loss"] == pytest.approx(
        parts.learn(view, 16)["optim/critic_loss"], rel=1e-5
    )
    for a, b in zip(whole.head.parameters(), parts.head.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    assert isinstance(whole.trunk, LanguagePolicy)


@pytest.mark.papers("ace", "mssr")
@pytest.mark.parametrize("name", ["ace", "ppo", "mssr"])
def test_resuming_goes_on_with_the_same_reference_and_critic(name: str, tmp_path: Path) -> None:
    knobs = {**KNOBS, "eval_every": 0, "lr": 1e-2}
    whole = rolltree.train(name, tiny_policy(), Early(), out=tmp_path / "whole", **knobs)
    rolltree.train(name, tiny_policy(), Early(), out=tmp_path / "parts", **{**knobs, "steps": 4})
    again = rolltree.train(name, tiny_policy(), Early(), out=tmp_path / "parts", resume=True, **knobs)
    assert timeless(again.metrics) == timeless(whole.metrics)
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)
    if name == "ppo":
        assert whole.last("train")["optim/critic_loss"] > 0
