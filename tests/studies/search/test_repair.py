"""SCOPE: failed rollouts keep their own steps up to the error, and groups gain what they lacked."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rolltree.objective.forced import ShapedForced
from tests.objective.test_hint import hinted


def test_corrected_tokens_have_the_shaped_weight_and_others_their_own() -> None:
    batch, told = ShapedForced(0.1)(hinted())
    p = float(np.exp(-3))
    w = 0.1 * p / (p + 0.1) ** 2
    assert batch.gain.tolist() == pytest.approx([0.25 * w, 0.25, 0])
    assert batch.loss.tolist() == pytest.approx([-0.25 * w, 0, -0.25])
    assert told["forced_share"].item() == pytest.approx(0.5)
    # f'(π)·π, by automatic differentiation.
    x = torch.tensor(-3.0, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(x.exp() / (x.exp() + 0.1), x)
    assert slope.item() == pytest.approx(w)
