"""ReMix and decoupled PPO: windows off centre, the identity between them, and three choices of proximal policy."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch
from rolltree.objective.clipped import Clipped
from rolltree.objective.correction import ImportanceWeight
from rolltree.objective.decoupled import Decoupled, loglinear
from rolltree.objective.penalty import KlPenalty
from rolltree.objective.registry import load_objective
from rolltree.testing.objective import random_pair
from rolltree_papers.remix.objective import Remix


def action(now: float, centre: float, a: float) -> Batch:
    """π/π_sampled = now, π_old/π_sampled = centre."""

    def one(x: float) -> torch.Tensor:
        return torch.tensor([x], dtype=torch.float64)

    logp = one(math.log(now)).requires_grad_()
    return Batch(logp, one(math.log(centre)), one(max(a, 0.0)), one(min(a, 0.0)), one(1.0), sampled=one(0.0))


@pytest.mark.parametrize(
    ("now", "centre", "a", "value"),
    [
        (2.1, 2.0, 1.0, 2.1),  # inside [1.8, 2.2], though far outside [0.8, 1.2]
        (2.5, 2.0, 1.0, 2.2),
        (1.5, 2.0, -1.0, -1.8),
        (0.05, 0.1, -1.0, -0.05),  # the lower bound −0.1 never binds
        (10.5, 10.0, 1.0, 10.2),  # a large centre: ±2 % of it
    ],
)
def test_remix_window_stands_around_the_proximal_policy(now: float, centre: float, a: float, value: float) -> None:
    assert -Remix()(action(now, centre, a))[0].item() == pytest.approx(value)


def test_the_ordinary_window_holds_most_replayed_mass_and_the_centred_one_none() -> None:
    """Before any update π = π_old: the centred window cannot bind."""
    batch = random_pair(3, drift=0.6).folded
    before = replace(batch, logp=batch.old.clone().requires_grad_())
    ordinary = Clipped(against="sampled")(before)[1]
    centred = Remix()(before)[1]
    assert (ordinary["clip_high"] + ordinary["clip_low"]).item() > 0.2
    assert (centred["clip_high"] + centred["clip_low"]).item() == 0.0


def test_remix_without_lag_is_the_clipped_surrogate_bit_for_bit(pair) -> None:
    batch = replace(pair.folded, sampled=pair.folded.old)
    assert Remix(0.2, 0.28)(batch)[0].item() == Clipped(0.2, 0.28)(batch)[0].item()


def test_a_relative_remix_window_is_decoupled_ppo_without_a_bound() -> None:
    batch = random_pair(7, missing=0.3).folded
    one, other = Remix(0.2, 0.28, relative=True)(batch)[0], Decoupled(0.2, 0.28, bound="none")(batch)[0]
    torch.testing.assert_close(one, other)
    torch.testing.assert_close(torch.autograd.grad(one, batch.logp), torch.autograd.grad(other, batch.logp))


def test_the_convex_pair_of_anchors(pair) -> None:
    batch = pair.folded
    got = Remix(beta=0.3, mixing=0.75)(batch)[0]
    pair_of = KlPenalty(0.3 * 0.75, "k2")(batch)[0] + KlPenalty(0.3 * 0.25, "k2", "previous")(batch)[0]
    torch.testing.assert_close(got, Remix()(batch)[0] + pair_of)
    assert Remix(beta=0.3, mixing=1.0).needs == {"sampled", "reference"}
    assert Remix(beta=0.0).needs == {"sampled"}
    assert Remix(beta=0.1, mixing=0.5).needs == {"sampled", "reference", "previous"}


def test_decoupled_multiplies_the_clipped_surrogate_by_a_masked_weight() -> None:
    batch = random_pair(4, missing=0.2, drift=1.0).folded
    w = (batch.old - batch.sampled).exp().nan_to_num(1.0)
    w = torch.where(w <= 5.0, w, 0)
    r = (batch.logp - batch.old).exp()
    expected = -(w * (batch.gain * r.clamp(max=1.2) + batch.loss * r.clamp(min=0.8))).sum()
    torch.testing.assert_close(Decoupled()(batch)[0], expected)
    same = load_objective("clipped", correction=ImportanceWeight("token", "mask", high=5.0))(batch)[0]
    assert Decoupled()(batch)[0].item() == same.item()


def test_the_sampling_policy_as_proximal_policy_is_ppo_on_stale_data(pair) -> None:
    got = Decoupled(prox="sampled")(pair.folded)[0]
    torch.testing.assert_close(got, Clipped(against="sampled")(pair.folded)[0])


def test_loglinear_proximal_policy() -> None:
    logp = torch.tensor([-1.0, -1.0, -1.0, -1.0], dtype=torch.float64, requires_grad=True)
    sampled = torch.tensor([-3.0, -3.0, -3.0, -3.0], dtype=torch.float64)
    got = loglinear(logp, sampled, torch.tensor([0, 1, 2, 4]))
    assert got.tolist() == pytest.approx([-3.0, -2.0, -5 / 3, -1.4])
    assert not got.requires_grad


def test_the_loglinear_proximal_policy_is_the_one_a_step_began_with() -> None:
    """Log-probs that drift evenly: sampled at version 3, the step begins at 5 and makes version 6."""
    at = {version: torch.tensor([-4.0 + 0.25 * version], dtype=torch.float64) for version in (3, 5, 6)}
    torch.testing.assert_close(loglinear(at[6], at[3], torch.tensor([5 - 3])), at[5])
    one_old = loglinear(at[6], at[5], torch.tensor([0]))
    torch.testing.assert_close(one_old, at[5])


def test_a_lag_of_one_is_corrected_for(pair) -> None:
    """w = π_prox/π_sampled was 1 at a staleness of 1, whatever had happened since."""
    sampled = pair.folded.logp.detach() - 0.4
    batch = replace(pair.folded, staleness=torch.ones_like(pair.folded.staleness), sampled=sampled)
    known = replace(batch, old=sampled + 0.2)
    assert Decoupled(prox="loglinear")(batch)[0].item() == pytest.approx(Decoupled()(known)[0].item())


def test_loglinear_falls_back_to_the_recomputed_policy_where_the_version_is_unknown(pair) -> None:
    batch = replace(pair.folded, staleness=torch.full_like(pair.folded.staleness, -1))
    assert Decoupled(prox="loglinear")(batch)[0].item() == Decoupled()(batch)[0].item()


def test_bad_knobs_are_refused() -> None:
    for build, words in (
        (lambda: Remix(mixing=1.2), "mixing"),
        (lambda: Decoupled(prox="new"), "prox='new'"),
        (lambda: Decoupled(clip_low=2.0), "clip_low"),
        (lambda: Decoupled(low=3.0, high=2.0), "low < high"),
    ):
        with pytest.raises(ObjectiveError, match=words):
            build()
