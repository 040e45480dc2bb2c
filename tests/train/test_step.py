"""A step of learning: accumulation, minibatches, anchors, the gap to the engine, and stopping before harm is done."""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from rolltree.credit.advantage import Advantage
from rolltree.credit.fold import Folded, expand, fold, leaf_weights
from rolltree.objective.batch import Batch, Level, Objective
from rolltree.objective.registry import load_objective
from rolltree.policy.language import LanguagePolicy
from rolltree.training.backward import DivergedError, StepKnobs
from rolltree.training.config import Optim
from rolltree.training.optimizer import make_optimizer
from rolltree.training.pack import micro_batches
from rolltree.training.step import Learner
from rolltree.training.step_metrics import Reread
from rolltree.tree.node import TRAINER_ENTROPY, TRAINER_LOGP
from rolltree.tree.table import Table, table
from tests.policy.forests import random_tree, tiny_llama

OPTIM = Optim(lr=1e-2, warmup=1, clip_norm=1e9)


def learner(optim: Optim = OPTIM, **anchors: LanguagePolicy) -> Learner:
    policy = LanguagePolicy(tiny_llama())
    return Learner(policy, make_optimizer(policy, optim), optim, anchors)


def rollouts(seed: int = 0, trees: int = 4) -> tuple[Table, Folded, Advantage]:
    rng = random.Random(seed)
    view = table([random_tree(rng, f"t{i}", nodes=16, least=12) for i in range(trees)])
    advantage = Advantage(leaf=np.random.default_rng(seed).normal(size=len(view.leaf)))
    return view, fold(view, advantage, leaf_weights(view, "token")), advantage


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def grad(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("name", ["clipped", "gspo"])
def test_the_token_budget_does_not_change_the_step(name: str) -> None:
    view, folded, advantage = rollouts()
    objective = load_objective(name, kl=0.1)
    paths = expand(view, advantage, leaf_weights(view, "token")) if name == "gspo" else None
    one, many = (learner(reference=LanguagePolicy(tiny_llama(seed=1))) for _ in range(2))
    a = one.step(objective, view, folded, paths, version=0, knobs=StepKnobs(token_budget=10**6))
    b = many.step(objective, view, folded, paths, version=0, knobs=StepKnobs(token_budget=25))
    assert a["optim/micro_batches"] == 1
    assert b["optim/micro_batches"] > 3
    assert torch.allclose(grad(one.policy.model), grad(many.policy.model), atol=1e-12)
    for key in (
        "optim/loss",
        "optim/grad_norm",
        "policy/clip_high",
        "policy/entropy",
        "policy/kl_reference",
        "budget/trained",
    ):
        assert a[key] == pytest.approx(b[key], abs=1e-9), key


def test_a_single_update_needs_no_old_log_probs() -> None:
    """Its ratio is one, so recomputing them first changes nothing."""
    view, folded, _ = rollouts()
    quick, slow = learner(), learner(replace(OPTIM, epochs=2))
    objective = load_objective("clipped")
    quick.step(objective, view, folded, None, version=0, knobs=StepKnobs())
    first = flat(quick.policy.model)
    with pytest.MonkeyPatch.context() as patch:
        steps = []
        patch.setattr(slow.optimizer, "step", lambda: steps.append(grad(slow.policy.model)))
        slow.step(objective, view, folded, None, version=0, knobs=StepKnobs())
    assert torch.allclose(grad(quick.policy.model), steps[0], atol=1e-12)
    assert not torch.equal(first, flat(tiny_llama()))


def test_several_updates_move_the_ratio_and_clip() -> None:
    view, folded, _ = rollouts()
    many = learner(replace(OPTIM, lr=0.1, minibatches=2, epochs=3))
    told = many.step(load_objective("clipped"), view, folded, None, version=0, knobs=StepKnobs())
    assert told["optim/updates"] == 6
    assert told["policy/ratio_max"] > 1.05
    assert told["policy/clip_high"] + told["policy/clip_low"] > 0


def test_penalties_see_the_reference_and_the_last_step() -> None:
    view, folded, _ = rollouts()
    reference, previous = (LanguagePolicy(tiny_llama(seed=s)) for s in (1, 2))
    mine = learner(reference=reference, previous=previous)
    objective = load_objective("clipped", kl=0.1, kl_anchor="previous")
    with torch.no_grad():
        micro = micro_batches(view, folded, 10**6)[0]
        now, last = (p.read(micro.packed).logp.numpy() for p in (mine.policy, previous))
    before = flat(mine.policy.model)
    told = mine.step(objective, view, folded, None, version=0, knobs=StepKnobs(token_budget=40))
    k3 = np.exp(last - now) - 1 + (now - last)
    assert told["policy/kl_previous"] == pytest.approx((micro.weight * k3).sum() / micro.weight.sum(), rel=1e-9)
    assert torch.equal(flat(previous.model), before), "the next step's `previous` is where this one began"
    assert torch.equal(flat(reference.model), flat(tiny_llama(seed=1)))


def test_actions_without_advantage_are_left_out_only_where_nothing_reads_them() -> None:
    view, _, _ = rollouts()
    leaf = np.where(view.leaf_tree < 2, 0.0, 1.0)
    folded = fold(view, Advantage(leaf=leaf), leaf_weights(view, "token"))
    lean, full = learner(), learner()
    a = lean.step(load_objective("clipped"), view, folded, None, version=0, knobs=StepKnobs())
    b = full.step(load_objective("clipped", entropy_bonus=1e-12), view, folded, None, version=0, knobs=StepKnobs())
    assert a["budget/trained"] < b["budget/trained"]
    assert torch.allclose(grad(lean.policy.model), grad(full.policy.model), atol=1e-9)


def test_the_gap_to_the_engine_is_measured_on_this_version_only() -> None:
    view, folded, _ = rollouts()
    mine = learner()
    micro = micro_batches(view, folded, 10**6)[0]
    logp = np.full(view.actions, np.nan)
    with torch.no_grad():
        logp[micro.packed.action] = mine.policy.read(micro.packed).logp.numpy()
    off = micro.packed.action[0]
    for node, start, length in zip(view.nodes, view.start, view.length, strict=True):
        node.logp = logp[start : start + length].astype(np.float32)
        node.version = np.full(length, 7, np.int32)
        if start <= off < start + length:
            node.logp[off - start] += 0.5
    told = deepcopy(mine).step(
        load_objective("clipped"), view, folded, None, version=7, knobs=StepKnobs(mismatch_limit=0.1)
    )
    assert told["policy/mismatch_max"] == pytest.approx(0.5, abs=1e-5)
    assert told["policy/mismatch_over"] == pytest.approx(1 / len(micro.gain))
    assert "policy/mismatch_max" not in mine.step(
        load_objective("clipped"), view, folded, None, version=8, knobs=StepKnobs()
    )


def test_nodes_keep_what_the_trainer_read_before_the_step() -> None:
    """Also with several updates: every log-prob is of the weights that the step began with."""
    view, folded, _ = rollouts()
    mine = learner(replace(OPTIM, minibatches=2, epochs=2))
    micro = micro_batches(view, folded, 10**6)[0]
    before = np.full(view.actions, np.nan)
    with torch.no_grad():
        before[micro.packed.action] = mine.policy.read(micro.packed).logp.numpy()
    read = Reread(view)
    mine.step(
        load_objective("cispo"), view, folded, None, version=1, knobs=StepKnobs(token_budget=32), watchers=(read,)
    )
    read.write()
    for node, start, length in zip(view.nodes, view.start, view.length, strict=True):
        expected = before[start : start + length]
        noted = node.notes.get(TRAINER_LOGP)
        assert (noted is None) == (not np.isfinite(expected).any())
        if noted is not None:
            found = np.array([np.nan if x is None else x for x in noted])
            seen = np.isfinite(found)
            assert seen.any()
            np.testing.assert_allclose(found[seen], expected[seen], atol=1e-4)


def test_nodes_keep_the_entropies_of_what_the_trainer_read() -> None:
    view, folded, _ = rollouts()
    mine = learner()
    micro = micro_batches(view, folded, 10**6)[0]
    with torch.no_grad():
        logits = mine.policy.read(micro.packed, logits=True).logits
    assert logits is not None
    before = np.full(view.actions, np.nan)
    before[micro.packed.action] = torch.distributions.Categorical(logits=logits).entropy().numpy()
    read = Reread(view)
    mine.step(load_objective("clipped"), view, folded, None, version=1, knobs=StepKnobs(), watchers=(read,))
    read.write()
    seen = 0
    for node, start, length in zip(view.nodes, view.start, view.length, strict=True):
        found = [np.nan if x is None else x for x in node.notes.get(TRAINER_ENTROPY, [None] * length)]
        np.testing.assert_allclose(found, before[start : start + length], atol=1e-5)
        seen += int(np.isfinite(found).sum())
    assert seen == len(micro.gain)


class Breaks:
    """An objective that breaks on the second micro-batch."""

    level: Level = "token"
    needs: frozenset[str] = frozenset()

    def __init__(self, factor: float) -> None:
        self.calls = 0
        self.factor = factor

    def __call__(self, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        self.calls += 1
        return batch.logp.sum() * (self.factor if self.calls == 2 else 1.0), {}


@pytest.mark.parametrize(("factor", "said"), [(float("nan"), "loss is nan"), (1e9, "limit 10000")])
def test_a_loss_out_of_bounds_stops_before_any_weight_changes(factor: float, said: str) -> None:
    view, folded, _ = rollouts()
    mine = learner()
    objective: Objective = Breaks(factor)
    with pytest.raises(DivergedError, match=said) as caught:
        mine.step(objective, view, folded, None, version=0, knobs=StepKnobs(token_budget=30))
    assert torch.equal(flat(mine.policy.model), flat(tiny_llama()))
    assert caught.value.micro is not None
    assert {t.id for t in caught.value.trees} <= {t.id for t in view.trees}
    assert len(caught.value.trees) == len(caught.value.micro.trees) >= 1


def test_the_learning_rate_warms_up() -> None:
    view, folded, _ = rollouts()
    mine = learner(replace(OPTIM, lr=1.0, warmup=4))
    rates = [
        mine.step(load_objective("clipped"), view, folded, None, version=0, knobs=StepKnobs())["optim/lr"]
        for _ in range(5)
    ]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0]


@pytest.mark.papers("bapo", "hapo")
@pytest.mark.parametrize("name", ["bapo", "hapo", "gpg", "kl_cov"])
def test_statistics_of_a_step_do_not_depend_on_how_it_is_split(name: str) -> None:
    """Bounds, scales and selections are fixed over all micro-batches before the first backward."""
    view, folded, advantage = rollouts()
    objective = load_objective(name)
    paths = expand(view, advantage, leaf_weights(view, "token")) if objective.level == "path" else None
    one, many = learner(), learner()
    a = one.step(objective, view, folded, paths, version=0, knobs=StepKnobs(token_budget=10**6))
    b = many.step(objective, view, folded, paths, version=0, knobs=StepKnobs(token_budget=25))
    assert (a["optim/micro_batches"], b["optim/micro_batches"] > 3) == (1, True)
    assert torch.allclose(grad(one.policy.model), grad(many.policy.model), atol=1e-10)


def test_gpg_counts_silent_groups_and_trains_the_others_alone() -> None:
    """α is that of each update's own groups; leaving the silent ones out changes no gradient."""
    view, _, advantage = rollouts(trees=6)
    leaf = advantage.leaf * np.isin(view.leaf_tree, [0, 4, 5])
    advantage, weights = Advantage(leaf=leaf), leaf_weights(view, "token")
    folded, paths = fold(view, advantage, weights), expand(view, advantage, weights)
    for minibatches, factors in ((1, [2.0]), (2, [3.0, 1.5])):
        ours, plain = (learner(replace(OPTIM, minibatches=minibatches, lr=1e-9)) for _ in range(2))
        told = ours.step(load_objective("gpg"), view, folded, paths, version=0, knobs=StepKnobs(token_budget=25))
        by_update = [folded.gain, folded.loss]
        for factor, trees in zip(factors, np.array_split(np.arange(6), minibatches), strict=True):
            mine = view.per_action(np.isin(view.tree, trees))
            by_update = [np.where(mine, factor * x, x) for x in by_update]
        scaled = Folded(*by_update, folded.weight)
        want = plain.step(load_objective("reinforce"), view, scaled, None, version=0, knobs=StepKnobs(token_budget=25))
        assert told["budget/packed"] == want["budget/packed"]
        assert told["optim/loss"] == pytest.approx(want["optim/loss"])
        assert torch.allclose(grad(ours.policy.model), grad(plain.policy.model), atol=1e-12)
