"""Gradients of single prompts, updates of one size, averaged weights, and steps as wide as a method wants."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rolltree
from rolltree.control.allocate import norm_test, true_ratio
from rolltree.control.order import ControlError
from rolltree.credit.fold import Folded
from rolltree.objective.registry import load_objective
from rolltree.policy.language import LanguagePolicy
from rolltree.recipe.registry import load_recipe
from rolltree.training.backward import StepKnobs
from rolltree.training.config import Optim, TrainConfig, TrainError
from rolltree.training.optimizer import averaged
from rolltree.training.step import Learner
from rolltree.tree.table import Table
from tests.policy.forests import tiny_llama
from tests.train.test_step import OPTIM, flat, learner, rollouts
from tests.train.toy import KNOBS, Early, tiny_policy


def prompt_gradients(view: Table, folded: Folded) -> torch.Tensor:
    """Each prompt's share of the step's gradient, by training on it alone."""
    out: list[torch.Tensor] = []
    for tree in range(len(view.trees)):
        alone = replace(folded, weight=np.where(view.per_action(view.tree == tree), folded.weight, 0.0))
        one = learner()
        one.step(load_objective("reinforce"), view, alone, None, version=0, knobs=StepKnobs())
        each = [torch.zeros_like(p) if p.grad is None else p.grad for p in one.policy.model.parameters()]
        out.append(torch.cat([g.flatten() for g in each]))
    return torch.stack(out)


def test_the_noise_is_that_of_the_prompts_own_gradients_and_measuring_changes_no_weight() -> None:
    view, folded, _ = rollouts(trees=5)
    shares = prompt_gradients(view, folded) * 5
    variance = float(((shares - shares.mean(0)) ** 2).sum()) / 4
    plain, measured = learner(), learner(replace(OPTIM, gradient_noise=True))
    plain.step(load_objective("reinforce"), view, folded, None, version=0, knobs=StepKnobs())
    told = measured.step(load_objective("reinforce"), view, folded, None, version=0, knobs=StepKnobs())
    assert told["optim/grad_variance"] == pytest.approx(variance, rel=1e-3)
    assert told["optim/noise_scale"] == pytest.approx(variance / float((shares.mean(0) ** 2).sum()), rel=1e-3)
    torch.testing.assert_close(flat(plain.policy.model), flat(measured.policy.model), rtol=1e-4, atol=1e-6)


def test_prompts_without_a_gradient_count_and_a_single_one_says_nothing() -> None:
    view, folded, _ = rollouts(trees=4)
    silent = view.per_action(view.tree == 0).astype(bool)
    quiet = replace(folded, gain=np.where(silent, 0.0, folded.gain), loss=np.where(silent, 0.0, folded.loss))
    optim = replace(OPTIM, gradient_noise=True)
    told = learner(optim).step(load_objective("reinforce"), view, quiet, None, version=0, knobs=StepKnobs())
    shares = prompt_gradients(view, quiet) * 4
    assert not shares[0].any()
    assert told["optim/grad_variance"] == pytest.approx(float(((shares - shares.mean(0)) ** 2).sum()) / 3, rel=1e-3)
    each = learner(replace(optim, minibatch_prompts=1))
    alone = each.step(load_objective("reinforce"), view, folded, None, version=0, knobs=StepKnobs())
    assert alone["optim/updates"] == 4
    assert "optim/noise_scale" not in alone


def test_updates_have_one_size_however_many_prompts_a_step_has() -> None:
    for trees, updates in ((2, 1), (4, 2), (5, 3)):
        view, folded, _ = rollouts(trees=trees)
        one = learner(replace(OPTIM, minibatch_prompts=2))
        told = one.step(load_objective("clipped"), view, folded, None, version=0, knobs=StepKnobs())
        assert told["optim/updates"] == updates


def test_the_averaged_policy_is_the_mean_of_all_updates_and_survives_a_restart() -> None:
    first, mean, policy = (LanguagePolicy(tiny_llama(seed=s)) for s in (0, 0, 0))
    history, mass = [flat(first.model)], 1.0
    for seed in (1, 2, 3):
        policy.model.load_state_dict(tiny_llama(seed=seed).state_dict())
        history.append(flat(policy.model))
        mass = averaged(mean, policy, mass, 0.7)
    weights = torch.tensor([0.7**i for i in (3, 2, 1, 0)])
    expected = (torch.stack(history) * (weights / weights.sum())[:, None]).sum(0)
    torch.testing.assert_close(flat(mean.model), expected)
    assert mass == pytest.approx(float(weights.sum()))

    def fresh() -> Learner:
        held = LanguagePolicy(deepcopy(tiny_llama()).requires_grad_(False))
        return learner(replace(OPTIM, proximal_decay=0.5, minibatches=2), ewma=held)

    view, folded, _ = rollouts()
    objective = load_objective("decoupled", prox="ewma", bound="truncate")
    one, two = fresh(), fresh()
    one.step(objective, view, folded, None, version=0, knobs=StepKnobs())
    assert one.averaged == pytest.approx(1.75)
    two.load_state_dict(deepcopy(one.state_dict()))
    two.policy.model.load_state_dict(one.policy.model.state_dict())
    for each in (one, two):
        each.step(objective, view, folded, None, version=1, knobs=StepKnobs())
    torch.testing.assert_close(flat(one.anchors["ewma"].model), flat(two.anchors["ewma"].model))
    assert not torch.allclose(flat(one.anchors["ewma"].model), flat(one.policy.model))


def test_the_clip_of_an_averaged_policy_is_centred_on_it() -> None:
    """A policy that has run away from its mean is stopped by the clip in its first update already."""
    view, folded, _ = rollouts()
    far = LanguagePolicy(tiny_llama(seed=1).requires_grad_(False))
    one = learner(ewma=far)
    told = one.step(load_objective("decoupled", prox="ewma"), view, folded, None, version=0, knobs=StepKnobs())
    same = learner(ewma=LanguagePolicy(tiny_llama().requires_grad_(False)))
    near = same.step(load_objective("decoupled", prox="ewma"), view, folded, None, version=0, knobs=StepKnobs())
    assert told["policy/clip_high"] + told["policy/clip_low"] > 0.05
    assert near["policy/clip_high"] + near["policy/clip_low"] == 0.0


def run(recipe: Any, out: Path, **knobs: Any) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    given: dict[str, Any] = {**KNOBS, "eval_every": 0, **knobs}
    done = rolltree.train(recipe, tiny_policy(), Early(), out=out, **given)
    return [line for line in done.metrics if line["kind"] == "train"]


@pytest.mark.papers("adadagrad")
def test_a_step_has_as_many_prompts_as_the_last_ones_noise_asks_for_and_resumes_so(tmp_path: Path) -> None:
    recipe = load_recipe("adadagrad", group=4, start=3, most=9, eta=0.7)
    lines = run(recipe, tmp_path / "whole", steps=6)
    prompts = 3
    for line in lines:
        assert line["budget/groups"] == prompts
        prompts = norm_test(line.get("optim/noise_scale"), prompts, 0.7, 9)
    assert lines[-1]["budget/groups"] > 3, "the toy's gradients are noisy"
    run(recipe, tmp_path / "cut", steps=3)
    again = run(recipe, tmp_path / "cut", steps=6, resume=True)
    assert [line["budget/groups"] for line in again] == [line["budget/groups"] for line in lines]


@pytest.mark.papers("ppo_million")
def test_a_wider_step_makes_more_updates_of_the_same_size(tmp_path: Path) -> None:
    recipe = load_recipe("ppo_million", environments="8, 16 at 2", minibatch=8, eta=0, group=2)
    lines = run(recipe, tmp_path / "run", steps=4)
    assert [line["budget/groups"] for line in lines] == [8, 8, 16, 16]
    assert [line["optim/updates"] for line in lines] == [1, 1, 2, 2]
    assert load_recipe("ppo_million", decay=0).build().objective.needs == {"sampled"}  # pyright: ignore


def test_the_norm_test_grows_only_where_noise_drowns_the_gradient() -> None:
    assert norm_test(4.0, 16, 0.5, 64) == 16, "4/16 is the square of one half"
    assert norm_test(5.0, 16, 0.5, 64) == 20
    assert norm_test(1e9, 16, 0.5, 64) == norm_test(float("inf"), 16, 0.5, 64) == 64
    assert norm_test(0.0, 16, 0.5, 64) == norm_test(None, 16, 0.5, 64) == 16
    assert true_ratio(3.0, 4) == 12.0
    assert true_ratio(4.0, 4) == float("inf")
    with pytest.raises(ControlError, match="eta=0"):
        norm_test(1.0, 16, 0.0, 64)


@pytest.mark.papers("adadagrad", "vcpo")
def test_what_cannot_be_measured_together_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="both say how large an update is"):
        TrainConfig(optim=Optim(minibatches=2, minibatch_prompts=4))
    with pytest.raises(TrainError, match="needs lr_updates"):
        run("grpo", tmp_path / "a", lr_schedule="linear", minibatch_prompts=2)
    with pytest.raises(TrainError, match="path by path"):
        run("vcpo", tmp_path / "b", gradient_noise=True)
    with pytest.raises(TrainError, match="ranks=2"):
        run("adadagrad", tmp_path / "c", ranks=2)
