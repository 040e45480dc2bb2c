"""Every named objective, also inside penalties and corrections, keeps the contract; broken ones are caught."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from rolltree.objective.batch import Batch
from rolltree.objective.gradient import Reinforce
from rolltree.objective.named import CORRECTIONS
from rolltree.objective.registry import OBJECTIVES, load_objective
from rolltree.testing.objective import CHECKS, check_objective, random_pair

VARIANTS = {
    **{name: load_objective(name) for name in OBJECTIVES.names()},
    **{f"clipped+{name}": load_objective("clipped", correction=name) for name in CORRECTIONS.names()},
    **{f"gspo+{name}": load_objective("gspo", correction=name) for name in CORRECTIONS.names()},
    "dual": load_objective("clipped", dual=3.0),
    "penalties": load_objective("clipped", kl=0.1, kl_estimator="k2", entropy_bonus=0.1, kl_weighted=True),
    "minpro-ppo": load_objective("minpro", style="ppo", inclusive=True, cap=True),
    "gspo-token": load_objective("gspo", token_gradient=True, clip_low=0.2, clip_high=0.2),
    "gspo-wide": load_objective("gspo", clip_low=0.2, clip_high=0.2),
    "bapo-gradient": load_objective("bapo", contribution="gradient", low_first=False),
    "remix-convex": load_objective("remix", beta=0.1, mixing=0.6),
    "remix-relative": load_objective("remix", relative=True),
    "decoupled-sequence": load_objective("decoupled", unit="sequence", bound="truncate"),
    "decoupled-loglinear": load_objective("decoupled", prox="loglinear"),
    "decoupled-surviving": load_objective("decoupled", low=0.5, high=2.0, denominator="surviving"),
    "cispo-sequence": load_objective("cispo", unit="sequence", high=1.1),
    "sapo-sequence": load_objective("sapo", unit="sequence"),
    "gspo-product": load_objective("gspo", product=True, clip_low=0.2, clip_high=0.2),
    "one_token-warm": load_objective("one_token", kappa=1.3),
    "clip_cov-much": load_objective("clip_cov", share=0.3, low=0.0),
    "kl_cov-much": load_objective("kl_cov", share=0.3, estimator="k3"),
    "pairwise-mean": load_objective("pairwise", length_mean=True, imitate=0.5),
}


@pytest.mark.papers("bapo", "minpro", "remix")
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", VARIANTS)
def test_keeps_the_contract(name: str, check) -> None:
    check(VARIANTS[name])


@dataclass(frozen=True)
class Counts(Reinforce):
    """Wrong: averages over actions instead of summing weights, so a shared action counts once."""

    def __call__(self, batch: Batch):
        return -((batch.gain + batch.loss) * batch.logp).mean() * 10, {}


@dataclass(frozen=True)
class Trusting(Reinforce):
    """Wrong: multiplies by an importance weight without looking whether there is one, and does not say it needs it."""

    def __call__(self, batch: Batch):
        sampled = batch.old if batch.sampled is None else batch.sampled
        return -((batch.gain + batch.loss) * (batch.old - sampled).exp() * batch.logp).sum(), {}


@dataclass(frozen=True)
class Leaky(Reinforce):
    """Wrong: hands out a metric that keeps the graph alive."""

    def __call__(self, batch: Batch):
        loss = -((batch.gain + batch.loss) * batch.logp).sum()
        return loss, {"loss": loss}


@pytest.mark.parametrize("broken", [Counts, Trusting, Leaky])
def test_catches_broken_objectives(broken) -> None:
    with pytest.raises(AssertionError, match=broken.__name__):
        check_objective(broken())


def test_the_generator_shares_actions_between_paths_with_both_signs() -> None:
    batch = random_pair(1).folded
    assert batch.paths is not None
    shared = torch.bincount(batch.paths.index) > 1
    both = (batch.gain > 0) & (batch.loss < 0)
    assert shared.sum() >= 2
    assert both.any()


@pytest.mark.papers("bapo", "minpro", "remix")
def test_an_objective_sees_nothing_of_an_action_no_leaf_counts() -> None:
    """Zero channels and zero weight: any log-probs may stand there."""
    batch = random_pair(6).folded
    assert batch.paths is not None
    mute = torch.zeros_like(batch.gain)
    paths = replace(batch.paths, advantage=torch.zeros_like(batch.paths.advantage), weight=0 * batch.paths.weight)
    silent = replace(batch, gain=mute, loss=mute, weight=mute, paths=paths)
    for name, objective in VARIANTS.items():
        assert objective(silent)[0].item() == 0.0, name
