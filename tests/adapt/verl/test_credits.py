from __future__ import annotations

import importlib
import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given as given_batches
from hypothesis import settings
from hypothesis import strategies as st

from rolltree.integrations.errors import AdaptError
from rolltree.integrations.verl import advantage_estimator, given, register_credits, register_objective


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
@given_batches(batch=batches())
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


def test_registering_without_verl_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "verl.trainer.ppo.core_algos", None)
    for module in ("verl", "verl.experimental", "verl.experimental.agent_loop.agent_loop"):
        monkeypatch.setitem(sys.modules, module, None)
    for register in (register_credits, lambda names: register_objective(names[0], names[0])):
        with pytest.raises(AdaptError, match="pip install verl"):
            register(["grpo"])
    monkeypatch.delitem(sys.modules, "rolltree.integrations.verl.loop", raising=False)
    with pytest.raises(AdaptError, match="TreeAgentLoop needs verl"):
        importlib.import_module("rolltree.integrations.verl.loop")


def test_advantages_that_are_given_are_taken_as_they_are():
    rewards, mask = torch.tensor([[0.5, -1.0, 9.0]]), torch.tensor([[1, 1, 0]])
    assert given(token_level_rewards=rewards, response_mask=mask, index=["a"])[0].tolist() == [[0.5, -1.0, 0.0]]


def algorithms():
    return pytest.importorskip("verl.trainer.ppo.core_algos", reason="verl is not installed: make test-verl")


def test_registered_credits_are_found_by_verl():
    theirs = algorithms()
    assert register_credits(["rloo"]) == register_credits(["rloo"]) == ("rolltree_rloo",)
    ours, _ = theirs.get_adv_estimator_fn("rolltree_rloo")(torch.tensor([[1.0], [0.0]]), torch.ones(2, 1), ["a", "a"])
    torch.testing.assert_close(ours, torch.tensor([[1.0], [-1.0]]))
    assert theirs.get_adv_estimator_fn("rolltree_given") is given


@pytest.mark.parametrize(
    ("credit", "name", "knobs"),
    [
        ("grpo", "grpo", {}),
        ("dr_grpo", "grpo", {"norm_adv_by_std_in_grpo": False}),
        ("rloo", "rloo", {}),
        ("opo", "opo", {}),
    ],
)
@given_batches(batch=batches())
@settings(max_examples=40, deadline=None)
def test_a_credit_is_verls_own_estimator_of_the_same_name(credit, name, knobs, batch):
    rewards, mask, index, _ = batch
    theirs, _ = algorithms().get_adv_estimator_fn(name)(rewards.clone(), mask, index=index, **knobs)
    ours, _ = advantage_estimator(credit)(token_level_rewards=rewards, response_mask=mask, index=index)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_verls_own_dispatch_calls_a_registered_credit():
    theirs = algorithms()
    from verl import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage

    (name,) = register_credits(["opo"])
    rewards, mask = torch.tensor([[0.0, 1.0], [0.0, 0.0], [0.0, 1.0]]), torch.ones(3, 2, dtype=torch.long)
    uid = np.array(["a", "a", "b"], dtype=object)
    data = DataProto.from_dict({"token_level_rewards": rewards, "response_mask": mask}, {"uid": uid})
    done = compute_advantage(data, adv_estimator=name, config=None)
    expected, _ = theirs.get_adv_estimator_fn(name)(rewards, mask, uid)
    torch.testing.assert_close(done.batch["advantages"], expected)
    assert done.batch["advantages"][:2].any()
