"""Off-policy corrections: weights, bounds, denominators, rejection, and what they do to paths."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Paths
from rolltree.objective.correction import ImportanceWeight, Reject, SecondMoment
from rolltree.objective.gradient import Reinforce
from rolltree.objective.registry import load_objective
from rolltree.recipe.registry import load_recipe
from rolltree.testing.objective import random_pair


def two_paths() -> Batch:
    """Actions 0 (shared), 1 and 2; w = 0.5, 4, 1 and one action (3) without a sampling probability on path 1."""

    def of(*values: float) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64)

    paths = Paths(
        index=torch.tensor([0, 1, 0, 2, 3]), path=torch.tensor([0, 0, 1, 1, 1]),
        advantage=of(1, 1, -1, -1, -1), weight=of(0.2, 0.2), count=2,
    )  # fmt: skip
    old = of(math.log(0.5), math.log(4.0), 0.0, -1.0)
    sampled = of(0.0, 0.0, 0.0, math.nan)
    gain, loss = of(0.2, 0.2, 0, 0), of(-0.2, 0, -0.2, -0.2)
    weight = of(0.4, 0.2, 0.2, 0.2)
    return Batch(old.clone().requires_grad_(), old, gain, loss, weight, sampled=sampled, paths=paths)


@pytest.mark.parametrize(
    ("correction", "gain", "loss"),
    [
        (ImportanceWeight("token", "none"), [0.1, 0.8, 0, 0], [-0.1, 0, -0.2, -0.2]),
        (ImportanceWeight("token", "truncate", high=2.0), [0.1, 0.4, 0, 0], [-0.1, 0, -0.2, -0.2]),
        (ImportanceWeight("token", "clamp", low=0.8, high=2.0), [0.16, 0.4, 0, 0], [-0.16, 0, -0.2, -0.2]),
        (ImportanceWeight("token", "mask", low=0.8, high=2.0), [0, 0, 0, 0], [0, 0, -0.2, -0.2]),
        (ImportanceWeight("sequence", "none"), [0.4, 0.4, 0, 0], [-0.1, 0, -0.1, -0.1]),
        (
            ImportanceWeight("geometric", "none"),
            [0.2 * 2**0.5, 0.2 * 2**0.5, 0, 0],
            [-0.2 * 0.5**0.5, 0, -0.2 * 0.5**0.5, -0.2 * 0.5**0.5],
        ),
        (Reject("sequence", low=0.0, high=1.0), [0, 0, 0, 0], [-0.2, 0, -0.2, -0.2]),
        (Reject("token", "k1", low=-1.0, high=1.0), [0.2, 0, 0, 0], [-0.2, 0, -0.2, -0.2]),
        (Reject("token", "k2", low=0.0, high=0.3), [0.2, 0, 0, 0], [-0.2, 0, -0.2, -0.2]),
        (Reject("token", "k3", low=0.0, high=0.2), [0.2, 0, 0, 0], [-0.2, 0, -0.2, -0.2]),
    ],
)
def test_credit_by_hand(correction, gain: list[float], loss: list[float]) -> None:
    batch = two_paths()
    corrected, _ = correction(batch)
    assert corrected.gain.tolist() == pytest.approx(gain)
    assert corrected.loss.tolist() == pytest.approx(loss)
    credit = corrected.paths.entry_weight * corrected.paths.advantage
    again = torch.zeros(4, dtype=torch.float64).index_add(0, corrected.paths.index, credit)
    assert again.tolist() == pytest.approx([g + x for g, x in zip(gain, loss, strict=True)])
    assert torch.equal(corrected.weight, batch.weight)


@pytest.mark.parametrize("unit", ["sequence", "geometric"])
def test_a_weight_per_path_keeps_how_often_a_shared_action_counts(unit) -> None:
    batch = two_paths()
    share = torch.tensor([0.5, 1, 0.5, 1, 1], dtype=torch.float64)
    once = replace(
        batch, gain=batch.gain * torch.tensor([0.5, 1, 1, 1]), loss=batch.loss * torch.tensor([0.5, 1, 1, 1]),
        weight=torch.tensor([0.2, 0.2, 0.2, 0.2], dtype=torch.float64), sampled=batch.old,
        paths=replace(batch.paths, share=share),
    )  # fmt: skip
    corrected, _ = ImportanceWeight(unit, "truncate", high=2.0)(once)
    assert corrected.gain.tolist() == pytest.approx(once.gain.tolist())
    assert corrected.loss.tolist() == pytest.approx(once.loss.tolist())
    assert once.paths.mass.sum().item() == pytest.approx(once.weight.sum().item())


def test_denominators_are_named() -> None:
    batch = two_paths()
    mask = ImportanceWeight("token", "mask", low=0.8, high=2.0, denominator="surviving")
    assert mask(batch)[0].loss.tolist() == pytest.approx([0, 0, -0.2 * 2.5, -0.2 * 2.5])
    reject = Reject("sequence", low=0.0, high=1.0, denominator="surviving")
    assert reject(batch)[0].loss.tolist() == pytest.approx([-0.2 / 0.6, 0, -0.2 / 0.6, -0.2 / 0.6])


def test_normalised_weights_have_mean_one() -> None:
    batch = random_pair(3, missing=0.2).folded
    unit = replace(batch, gain=batch.weight, loss=0 * batch.loss, paths=None)
    corrected, _ = ImportanceWeight("token", "truncate", high=2.0, normalise=True)(unit)
    assert corrected.gain.sum().item() == pytest.approx(1.0)


def test_everything_rejected_costs_nothing() -> None:
    batch = two_paths()
    for denominator in ("original", "surviving"):
        objective = load_objective("clipped", correction=Reject("token", low=50.0, high=60.0, denominator=denominator))
        loss, metrics = objective(batch)
        assert loss.item() == 0.0
        assert metrics["rejected"].item() == pytest.approx(1.0)


def test_m2po_drops_the_largest_mismatches_until_the_second_moment_fits() -> None:
    batch = two_paths()  # squares of log w: 0.48 (weight 0.4), 1.92 (0.2), 0, 0
    corrected, metrics = SecondMoment(0.25)(batch)
    assert corrected.gain.tolist() == pytest.approx([0.2, 0, 0, 0])
    assert metrics["second_moment"].item() == pytest.approx(0.4 * math.log(2) ** 2 / 0.8)
    assert SecondMoment(10.0)(batch)[0].gain.tolist() == batch.gain.tolist()
    assert SecondMoment(0.01)(batch)[1]["rejected"].item() == pytest.approx(0.6)


@pytest.mark.papers("m2po")
def test_m2po_averages_over_what_is_left_where_asked_to() -> None:
    batch = two_paths()
    loss, _ = load_objective("reinforce", correction=SecondMoment(0.25, denominator="surviving"))(batch)
    kept, left = torch.tensor([True, False, True, True]), 0.8
    credit = (batch.gain + batch.loss)[kept] * float(batch.weight.sum()) / left
    assert loss.item() == pytest.approx(-(credit * batch.logp[kept]).sum().item())
    over_all, _ = load_objective("reinforce", correction=SecondMoment(0.25))(batch)
    assert loss.item() == pytest.approx(over_all.item() / left)
    recipe = load_recipe("m2po", denominator="surviving").build()
    assert recipe.objective.corrections[0].denominator == "surviving"  # type: ignore[attr-defined]


def test_truncated_is_removes_the_bias_of_the_sampling_distribution() -> None:
    """With w unbounded, the mean REINFORCE gradient over actions from μ is the policy gradient under π."""
    g = torch.Generator().manual_seed(2)
    theta = torch.randn(5, generator=g, dtype=torch.float64).requires_grad_()
    mu = torch.randn(5, generator=g, dtype=torch.float64).log_softmax(0)
    reward = torch.randn(5, generator=g, dtype=torch.float64)
    logp = theta.log_softmax(0)
    batch = Batch(
        logp=logp, old=logp.detach(), gain=mu.exp() * reward.clamp(min=0), loss=mu.exp() * reward.clamp(max=0),
        weight=mu.exp(), sampled=mu,
    )  # fmt: skip
    true = torch.autograd.grad((logp.exp() * reward).sum(), theta, retain_graph=True)[0]
    for correction, right in ((ImportanceWeight("token", "none"), True), (ImportanceWeight(high=1.0), False)):
        objective = load_objective("reinforce", correction=correction)
        got = -torch.autograd.grad(objective(batch)[0], theta, retain_graph=True)[0]
        assert torch.allclose(got, true) is right
    plain = -torch.autograd.grad(Reinforce()(batch)[0], theta)[0]
    assert not torch.allclose(plain, true)


def test_corrections_run_in_order_and_leave_penalties_alone(pair) -> None:
    batch = pair.folded
    chain = [Reject("token", low=0.5, high=2.0), ImportanceWeight("token", "truncate", high=1.5)]
    objective = load_objective("clipped", correction=chain, kl=0.1)
    by_hand = chain[1](chain[0](batch)[0])[0]
    base = load_objective("clipped")(by_hand)[0]
    penalty = load_objective("clipped", kl=0.1)(batch)[0] - load_objective("clipped")(batch)[0]
    torch.testing.assert_close(objective(batch)[0], base + penalty)
    assert objective.needs == {"sampled", "reference"}
    assert objective.level == "token"
    assert load_objective("clipped", correction="sequence_tis").level == "path"


def test_a_sequence_weight_without_paths_says_so(pair) -> None:
    with pytest.raises(ObjectiveError, match="level='path'"):
        ImportanceWeight("sequence")(replace(pair.folded, paths=None))
    with pytest.raises(ObjectiveError, match="`sampled`"):
        ImportanceWeight()(replace(pair.folded, sampled=None))


def test_bad_knobs_are_refused() -> None:
    for build, words in (
        (lambda: ImportanceWeight(unit="path"), "unit='path'"),
        (lambda: ImportanceWeight(bound="clip"), "bound='clip'"),
        (lambda: Reject(measure="kl"), "measure='kl'"),
        (lambda: ImportanceWeight(denominator="all"), "denominator='all'"),
    ):
        with pytest.raises(ObjectiveError, match=words):
            build()
