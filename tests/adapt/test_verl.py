from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.adapt.errors import AdaptError
from rolltree.adapt.verl import advantage_estimator, register_credits


@st.composite
def batches(draw):
    """Outcomes of some prompts' rollouts, shuffled, with masks that have holes where an environment spoke."""
    groups = draw(st.lists(st.integers(2, 5), min_size=1, max_size=4))
    index = draw(st.permutations([f"p{g}" for g, size in enumerate(groups) for _ in range(size)]))
    outcomes = draw(st.lists(st.integers(-3, 3), min_size=len(index), max_size=len(index)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    mask = rng.random((len(index), 6)) < 0.7
    mask[:, 0] = True
    rewards = np.zeros(mask.shape)
    for row, outcome in enumerate(outcomes):
        rewards[row, np.flatnonzero(mask[row])[-1]] = outcome
    return torch.tensor(rewards), torch.tensor(mask).long(), np.array(index), [float(o) for o in outcomes]


def expected(kind: str, outcomes: list[float], index: list[str], row: int) -> float:
    """The definitions, written down from the papers for one rollout at a time."""
    group = [r for r, i in zip(outcomes, index, strict=True) if i == index[row]]
    n, mean = len(group), sum(group) / len(group)
    if kind == "grpo":
        return (outcomes[row] - mean) / (math.sqrt(sum((r - mean) ** 2 for r in group) / (n - 1)) + 1e-6)
    if kind == "dr_grpo":
        return outcomes[row] - mean
    return outcomes[row] - (sum(group) - outcomes[row]) / (n - 1)


@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "rloo"])
@given(batch=batches())
@settings(max_examples=40, deadline=None)
def test_estimators_are_their_definitions_at_every_masked_token(kind, batch):
    rewards, mask, index, outcomes = batch
    advantages, returns = advantage_estimator(kind)(
        token_level_rewards=rewards, response_mask=mask, index=index, config=None
    )
    assert torch.equal(advantages, returns)
    assert advantages.dtype == rewards.dtype
    for row in range(len(outcomes)):
        value = expected(kind, outcomes, list(index), row)
        np.testing.assert_allclose(advantages[row].numpy(), value * mask[row].numpy(), atol=1e-9)


def test_a_rollout_without_a_token_teaches_nothing_but_counts_in_its_group():
    rewards = torch.tensor([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    mask = torch.tensor([[1, 1], [1, 0], [0, 0]])
    advantages, _ = advantage_estimator("dr_grpo")(rewards, mask, ["a", "a", "a"])
    torch.testing.assert_close(advantages, torch.tensor([[2 / 3, 2 / 3], [-1 / 3, 0.0], [0.0, 0.0]]))


def test_what_verl_cannot_supply_is_refused_when_the_estimator_is_made():
    with pytest.raises(AdaptError, match="needs action:value"):
        advantage_estimator("gae")
    with pytest.raises(AdaptError, match="no `index`"):
        advantage_estimator("grpo")(torch.zeros(1, 1), torch.ones(1, 1))


def test_registering_without_verl_is_one_sentence():
    try:
        import verl  # noqa: F401
    except ImportError:
        with pytest.raises(AdaptError, match="pip install verl"):
            register_credits(["grpo"])
    else:
        pytest.skip("verl is installed")


def test_registered_credits_are_found_by_verl():
    algorithms = pytest.importorskip("verl.trainer.ppo.core_algos", reason="verl is not installed")
    (name,) = register_credits(["rloo"])
    estimate = algorithms.get_adv_estimator_fn(name)
    ours, _ = estimate(torch.tensor([[1.0], [0.0]]), torch.ones(2, 1), ["a", "a"])
    torch.testing.assert_close(ours, torch.tensor([[1.0], [-1.0]]))
