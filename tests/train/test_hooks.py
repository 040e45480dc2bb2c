"""What objectives may ask of the trainer: a scaled step, gradients path by path, a schedule, held forwards."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from rolltree.credit.advantage import Advantage
from rolltree.credit.fold import expand, fold, leaf_weights
from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, fit
from rolltree.objective.hooks import accumulator_of, step_factor
from rolltree.objective.registry import load_objective
from rolltree.objective.staleness import ess, minimum_variance_baseline, sequence_weights, step_scale
from rolltree.policy.language import LanguagePolicy
from rolltree.training.backward import StepKnobs
from rolltree.training.config import Optim
from rolltree.training.optimizer import make_optimizer
from rolltree.training.pack import Anchors, micro_batches, objective_batch
from rolltree.training.step import Learner
from rolltree.tree.table import Table
from tests.policy.forests import tiny_llama
from tests.train.test_step import flat, grad, learner, rollouts


def sampled_before(view: Table, spread: float = 0.3) -> None:
    """Log-probs of an older policy under every trained action."""
    rng = np.random.default_rng(0)
    policy = LanguagePolicy(tiny_llama())
    _, folded, _ = rollouts()
    micro = micro_batches(view, folded, 10**6)[0]
    sampling_logprob = np.full(view.actions, np.nan)
    with torch.no_grad():
        logp = policy.read(micro.packed).logp.numpy()
    sampling_logprob[micro.packed.action] = logp + spread * rng.normal(size=len(logp))
    for node, start, length in zip(view.nodes, view.start, view.length, strict=True):
        node.sampling_logprob = sampling_logprob[start : start + length].astype(np.float32)


@pytest.mark.papers("vcpo")
def test_vcpo_in_the_trainer_is_its_formula_path_by_path() -> None:
    """Σ over trees of Σ_i w_i (A_i − b*)·∇ ω Σ_t log π, b* from the norms of each path's own gradient."""
    view, folded, advantage = rollouts()
    sampled_before(view)
    assert advantage.leaf is not None
    advantage.leaf[view.leaf_tree == 1] = 0.0
    weights = leaf_weights(view, "token")
    paths = expand(view, advantage, weights)
    mine = learner()
    told = mine.step(
        load_objective("vcpo", baseline=True), view, folded, paths, version=0, knobs=StepKnobs(token_budget=10**6)
    )
    policy = LanguagePolicy(tiny_llama())
    micro = micro_batches(view, folded, 10**6, paths=paths)[0]
    read = policy.read(micro.packed)
    batch = objective_batch(micro, read, Anchors(), 0)
    assert batch.paths is not None
    assert batch.paths.group is not None
    w = sequence_weights(batch)
    parameters = list(policy.parameters())
    gradients, rewards = [], []
    for i in range(batch.paths.count):
        own = batch.paths.path == i
        score = (batch.paths.entry_weight * batch.logp[batch.paths.index])[own].sum()
        found = torch.autograd.grad(score, parameters, retain_graph=True, allow_unused=True)
        gradients.append(torch.cat([torch.zeros_like(p).flatten() if g is None else g.flatten()
                                    for p, g in zip(parameters, found, strict=True)]))  # fmt: skip
        rewards.append(float(batch.paths.advantage[own][0]))
    stacked, reward = torch.stack(gradients), torch.tensor(rewards, dtype=torch.float64)
    wanted = torch.zeros_like(stacked[0])
    capped = w.clamp(max=8.0)
    for group in batch.paths.group.unique():
        here = batch.paths.group == group
        b = minimum_variance_baseline(reward[here], stacked[here].norm(dim=1).double(), capped[here].double())
        wanted -= ((capped[here] * (reward[here] - b)).to(stacked)[:, None] * stacked[here]).sum(0)
    got = torch.cat([p.grad.flatten() for p in mine.policy.parameters() if p.grad is not None])
    assert torch.allclose(got, wanted, atol=1e-9)
    assert told["optim/step_factor"] == pytest.approx(step_scale(float(ess(w))), rel=1e-6)
    assert told["policy/update_ess"] == pytest.approx(float(ess(w)), rel=1e-6)
    assert told["optim/step_factor"] < 1


@pytest.mark.papers("vcpo")
def test_a_constant_added_to_a_groups_advantages_changes_nothing() -> None:
    view, folded, advantage = rollouts()
    sampled_before(view)
    weights = leaf_weights(view, "token")
    steps = []
    for shift in (0.0, 5.0):
        mine = learner()
        shifted = expand(view, Advantage(leaf=advantage.leaf + shift), weights)
        mine.step(load_objective("vcpo", baseline=True), view, folded, shifted, version=0, knobs=StepKnobs())
        steps.append(grad(mine.policy.model))
    assert torch.allclose(*steps, atol=1e-8)


@pytest.mark.papers("vcpo")
def test_no_tree_has_anything_to_teach() -> None:
    view, folded, advantage = rollouts()
    sampled_before(view)
    paths = expand(view, Advantage(leaf=0.0 * advantage.leaf), leaf_weights(view, "token"))
    mine = learner(Optim(lr=1e-2, warmup=1, weight_decay=0.0))
    told = mine.step(load_objective("vcpo", baseline=True), view, folded, paths, version=0, knobs=StepKnobs())
    assert told["optim/loss"] == told["optim/grad_norm"] == told["policy/baseline"] == 0
    assert 0 < told["policy/update_ess"] < 1
    assert torch.equal(flat(mine.policy.model), flat(tiny_llama()))


@pytest.mark.papers("vcpo")
def test_advantages_that_differ_within_a_path_have_no_such_baseline() -> None:
    view, folded, advantage = rollouts()
    sampled_before(view)
    uneven = replace(advantage, action=np.random.default_rng(0).normal(size=view.actions))
    paths = expand(view, uneven, leaf_weights(view, "token"))
    with pytest.raises(ObjectiveError, match="one advantage per path"):
        learner().step(load_objective("vcpo", baseline=True), view, folded, paths, version=0, knobs=StepKnobs())


@dataclass(frozen=True)
class Half:
    """The clipped surrogate with half a step."""

    level: str = "token"
    needs: frozenset[str] = frozenset()

    def __call__(self, batch: Batch):
        assert batch.logp.requires_grad
        return load_objective("clipped")(batch)

    def step_factor(self, batches) -> float:
        assert not any(batch.logp.requires_grad for batch in batches)
        return 0.5


def test_an_objective_scales_the_step_and_only_this_one() -> None:
    view, folded, _ = rollouts()
    optim = Optim(lr=1e-2, warmup=1, clip_norm=1e9, weight_decay=0.0)
    start = flat(tiny_llama())
    full, half = learner(optim), learner(optim)
    full.step(load_objective("clipped"), view, folded, None, version=0, knobs=StepKnobs())
    told = half.step(Half(), view, folded, None, version=0, knobs=StepKnobs(token_budget=30))  # pyright: ignore
    assert told["optim/step_factor"] == 0.5
    assert told["optim/lr"] == half.optimizer.param_groups[0]["lr"] == 1e-2
    assert torch.allclose(2 * (flat(half.policy.model) - start), flat(full.policy.model) - start, atol=1e-9)


@pytest.mark.papers("vcpo")
def test_hooks_reach_through_penalties_and_corrections() -> None:
    wrapped = load_objective("vcpo", kl=0.1)
    batch = Batch(*(torch.zeros(0, dtype=torch.float64) for _ in range(5)))
    assert step_factor(load_objective("clipped", kl=0.1), [batch]) is None
    assert accumulator_of(wrapped) is None
    with pytest.raises(ObjectiveError, match="path by path and takes no penalties"):
        accumulator_of(load_objective("vcpo", baseline=True, correction="tis"))


@pytest.mark.papers("bapo", "hapo")
@pytest.mark.parametrize("name", ["bapo", "hapo", "clip_cov"])
def test_holding_forwards_is_reading_twice(name: str) -> None:
    view, folded, advantage = rollouts()
    objective = load_objective(name)
    paths = expand(view, advantage, leaf_weights(view, "token")) if objective.level == "path" else None
    grads = []
    for held in (1, 100):
        mine = learner()
        told = mine.step(objective, view, folded, paths, version=0, knobs=StepKnobs(token_budget=25, held=held))
        assert told["optim/micro_batches"] > 3
        grads.append(grad(mine.policy.model))
    assert torch.equal(*grads)


@pytest.mark.papers("aepo", "bapo", "minpro", "remix")
@pytest.mark.parametrize("name", ["clipped", "cispo", "sapo", "aepo", "bapo", "remix", "decoupled", "gspo", "gmpo",
                                  "minpro"])  # fmt: skip
@pytest.mark.parametrize("minibatches", [1, 2])
def test_leaving_out_what_has_no_advantage_changes_no_update(name: str, minibatches: int) -> None:
    view, _, _ = rollouts()
    sampled_before(view)
    leaf = np.where(view.leaf_tree == 1, 0.0, np.random.default_rng(0).normal(size=len(view.leaf)))
    advantage, weights = Advantage(leaf=leaf), leaf_weights(view, "token")
    folded = fold(view, advantage, weights)
    optim = Optim(lr=1e-2, warmup=1, clip_norm=1e9, minibatches=minibatches)
    taught, models = [], []
    for penalties in ({}, {"entropy_bonus": 1e-12}):
        objective = load_objective(name, **penalties)
        paths = expand(view, advantage, weights) if objective.level == "path" else None
        policy = LanguagePolicy(tiny_llama())
        # Plain descent: Adam would turn the penalty's rounding into steps where the gradient is nearly zero.
        mine = Learner(policy, make_optimizer(policy, optim), optim, {})
        mine.optimizer = torch.optim.SGD(policy.parameters(), lr=optim.lr)  # pyright: ignore
        told = mine.step(objective, view, folded, paths, version=0, knobs=StepKnobs())
        taught.append(told["budget/trained"])
        models.append(flat(policy.model))
    assert taught[0] < taught[1]
    assert torch.allclose(*models, atol=1e-9)


def test_the_reference_can_be_moved_to_the_present() -> None:
    view, folded, _ = rollouts()
    mine = learner(reference=LanguagePolicy(tiny_llama(seed=1)))
    mine.step(load_objective("clipped", kl=0.1), view, folded, None, version=0, knobs=StepKnobs())
    mine.reanchor("reference")
    assert torch.equal(flat(mine.anchors["reference"].model), flat(mine.policy.model))


@pytest.mark.papers("bapo")
def test_a_bypass_divides_by_the_distribution_sampled_from() -> None:
    from rolltree.testing.objective import random_pair

    batch = random_pair(3, missing=0.3).folded
    for name in ("clipped", "bapo", "cispo", "gmpo"):
        got = fit(load_objective(name, correction="bypass"), [batch])(batch)[0]
        known = batch.sampled.isfinite()
        swapped = replace(batch, old=torch.where(known, batch.sampled, batch.old))
        torch.testing.assert_close(got, fit(load_objective(name), [swapped])(swapped)[0])
    torch.testing.assert_close(
        load_objective("clipped", correction="bypass")(batch)[0], load_objective("clipped", against="sampled")(batch)[0]
    )
