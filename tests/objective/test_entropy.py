"""AEPO's and HAPO's windows, quadrant by quadrant."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, fit
from rolltree.objective.clipped import Clipped
from rolltree.objective.entropy import Aepo, EntropyScale, Hapo, entropy_scale
from rolltree.testing.objective import random_pair


def action(ratio: float, a: float, entropy: float = 1.0) -> Batch:
    def one(x: float) -> torch.Tensor:
        return torch.tensor([x], dtype=torch.float64)

    logp = one(math.log(ratio)).requires_grad_()
    return Batch(logp, one(0.0), one(max(a, 0.0)), one(min(a, 0.0)), one(1.0), entropy=one(entropy))


def slope(objective, batch: Batch) -> float:
    return torch.autograd.grad(-objective(batch)[0], batch.logp)[0].item()


def test_aepo_keeps_the_value_and_a_bounded_gradient_above_the_window() -> None:
    batch = action(2.5, 3.0)
    assert -Aepo()(batch)[0].item() == pytest.approx(-Clipped()(batch)[0].item()) == 3 * 1.2
    assert slope(Aepo(), batch) == pytest.approx(3 * 1.2)
    assert slope(Clipped(), batch) == 0.0


@pytest.mark.parametrize(("ratio", "a"), [(1.1, 2.0), (0.4, 2.0), (0.4, -2.0), (3.0, -2.0), (20.0, -2.0)])
def test_aepo_is_the_clipped_surrogate_everywhere_else(ratio: float, a: float) -> None:
    batch = action(ratio, a)
    assert Aepo(dual=5.0)(batch)[0].item() == pytest.approx(Clipped(dual=5.0)(batch)[0].item())
    assert slope(Aepo(dual=5.0), batch) == pytest.approx(slope(Clipped(dual=5.0), batch))


def test_normalised_entropy_reaches_one_on_either_side_of_the_pivot() -> None:
    entropy = torch.tensor([math.exp(x) for x in (-4.0, -3.0, -2.0, -1.0, 0.0, 1.0)], dtype=torch.float64)
    scale = entropy_scale(entropy, 0.8)
    assert scale.pivot == pytest.approx(0.0)
    assert scale(entropy).tolist() == pytest.approx([-1, -0.75, -0.5, -0.25, 0, 1])
    assert scale(torch.tensor([math.exp(5.0), 0.0], dtype=torch.float64)).tolist() == [1.0, -1.0]


def test_equal_entropies_are_neutral() -> None:
    scale = entropy_scale(torch.full((5,), 0.7))
    assert scale(torch.full((5,), 0.7)).abs().max() < 1e-6
    assert entropy_scale(torch.zeros(0)) == EntropyScale(0.0, 1.0, 1.0)


LOW, HIGH = math.exp(-0.5), math.exp(0.5)  # ĥ = −0.5 and +0.5 on the unit scale
UNIT = EntropyScale(pivot=0.0, top=1.0, bottom=1.0)


@pytest.mark.parametrize(
    ("ratio", "a", "entropy", "value"),
    [
        (1.05, 2.0, LOW, 2 * 0.5 * 1.05),  # inside half the window: low entropy counts half
        (1.05, 2.0, HIGH, 2 * 1.05),  # … and high entropy as it is
        (1.15, 2.0, LOW, 2 * 1.15),  # outside: low entropy as it is
        (1.15, 2.0, HIGH, 2 * 1.5 * 1.15),  # … and high entropy half again
        (1.5, 1.0, HIGH, 1.5 * 1.3),  # upper bound 1 + 0.2·1.5
        (1.5, 1.0, LOW, 1.2),
        (0.5, -1.0, LOW, -0.7),  # lower bound 1 − 0.2·1.5
        (0.5, -1.0, HIGH, -1.5 * 0.8),
        (50.0, -1.0, LOW, -10.0),  # dual clip
    ],
)
def test_hapo_quadrants(ratio: float, a: float, entropy: float, value: float) -> None:
    assert -Hapo(scale=UNIT)(action(ratio, a, entropy))[0].item() == pytest.approx(value)


def test_hapo_without_its_knobs_is_the_dual_clipped_surrogate_bit_for_bit(pair) -> None:
    assert Hapo(alpha=0.0, beta=0.0)(pair.folded)[0].item() == Clipped(dual=10.0)(pair.folded)[0].item()


def test_hapo_scale_is_that_of_the_whole_step() -> None:
    parts = [random_pair(s).folded for s in (1, 2, 3)]
    fitted = fit(Hapo(), parts)
    assert fitted.scale == entropy_scale(torch.cat([p.entropy for p in parts]))
    assert fitted.scale != fit(Hapo(), parts[:1]).scale


def test_no_gradient_reaches_the_entropy(pair) -> None:
    loss, _ = Hapo()(replace(pair.folded, entropy=pair.folded.entropy * 1.0))
    assert torch.autograd.grad(loss, pair.folded.entropy, allow_unused=True)[0] is None


def test_knobs_that_flip_signs_are_refused() -> None:
    with pytest.raises(ObjectiveError, match="signs flip"):
        Hapo(beta=1.5)
