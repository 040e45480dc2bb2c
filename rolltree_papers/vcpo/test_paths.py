"""What `vcpo` promises beside what all of its kind do."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rolltree.objective.staleness import ess, sequence_weights
from rolltree.testing.objective import random_pair
from rolltree_papers.vcpo.objective import Vcpo
from tests.objective.test_paths import same_value_and_gradient, sequences


@given(seed=st.integers(0, 10_000))
def test_vcpo_weighs_a_sequence_by_its_product(seed: int) -> None:
    batch = random_pair(seed, missing=0.2).folded
    total = torch.zeros((), dtype=torch.float64)
    weights = []
    for leaf, actions, advantage in sequences(batch):
        d = (batch.logp - batch.sampled)[actions].detach()
        w = d[d.isfinite()].sum().exp().item()
        weights.append((leaf, w))
        total = total - (batch.paths.weight[leaf] * min(w, 8.0) * advantage * batch.logp[actions]).sum()
    loss, metrics = Vcpo()(batch)
    same_value_and_gradient(loss, total, batch)
    raw = sequence_weights(batch)
    for leaf, w in weights:
        assert raw[leaf].item() == pytest.approx(w)
    assert metrics["update_ess"].item() == pytest.approx(ess(raw).item())
