"""What `minpro` promises beside what all of its kind do."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from rolltree.testing.objective import random_pair
from rolltree_papers.minpro.objective import MinPro
from tests.objective.test_paths import same_value_and_gradient, sequences


@given(seed=st.integers(0, 10_000), inclusive=st.booleans(), cap=st.booleans())
def test_minpro_weighs_by_the_smallest_earlier_ratio(seed: int, inclusive: bool, cap: bool) -> None:
    batch = random_pair(seed, missing=0.2).folded
    cispo = ppo = torch.zeros((), dtype=torch.float64)
    for leaf, actions, advantage in sequences(batch):
        low, seen = math.inf, False
        for action, a in zip(actions.tolist(), advantage, strict=True):
            known = bool(batch.sampled[action].isfinite())
            rho = (batch.logp[action] - (batch.sampled if known else batch.old)[action]).exp()
            if inclusive and known:
                low, seen = min(low, rho.item()), True
            factor = low if seen else 1.0
            factor = min(factor, 1.0) if cap else factor
            weight = min(rho.item() * factor, 5.0)
            cispo = cispo - batch.paths.weight[leaf] * a * weight * batch.logp[action]
            ppo = ppo - batch.paths.weight[leaf] * factor * torch.minimum(rho * a, rho.clamp(0.8, 1.28) * a)
            if not inclusive and known:
                low, seen = min(low, rho.item()), True
    same_value_and_gradient(MinPro(inclusive=inclusive, cap=cap)(batch)[0], cispo, batch)
    same_value_and_gradient(MinPro("ppo", inclusive=inclusive, cap=cap)(batch)[0], ppo, batch)
