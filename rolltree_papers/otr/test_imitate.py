"""One-token rollout: the closed form against enumeration and against sampling."""

from __future__ import annotations

import pytest
import torch

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch
from rolltree.objective.gradient import Reinforce
from rolltree_papers.otr.objective import OneToken

BETA = -0.1


def position(seed: int = 0, vocabulary: int = 6) -> tuple[torch.Tensor, int]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(vocabulary, generator=g, dtype=torch.float64).requires_grad_(), 2


def batch_of(logits: torch.Tensor, data: int) -> Batch:
    one = torch.ones(1, dtype=torch.float64)
    logp = logits.log_softmax(-1)[data][None]
    return Batch(logp, logp.detach(), one, 0 * one, one, logits=logits[None])


def expected_gradient(logits: torch.Tensor, data: int, kappa: float) -> torch.Tensor:
    """Σ_a q(a)·R(a)·∇log π(a), one action at a time."""
    q = (logits.detach() / kappa).softmax(-1)
    total = torch.zeros_like(logits)
    for a in range(len(logits)):
        score = torch.autograd.grad(logits.log_softmax(-1)[a], logits)[0]
        total += q[a] * (1.0 if a == data else BETA) * score
    return total


@pytest.mark.parametrize("kappa", [1.0, 1.3, 0.7])
def test_closed_form_equals_enumeration(kappa: float) -> None:
    logits, data = position()
    got = -torch.autograd.grad(OneToken(BETA, kappa)(batch_of(logits, data))[0], logits)[0]
    torch.testing.assert_close(got, expected_gradient(logits, data, kappa))


def test_at_neutral_temperature_beta_only_scales_the_probability_weighted_likelihood() -> None:
    logits, data = position()
    dft = torch.autograd.grad(logits.log_softmax(-1)[data] * logits.softmax(-1)[data].detach(), logits)[0]
    got = -torch.autograd.grad(OneToken(BETA)(batch_of(logits, data))[0], logits)[0]
    torch.testing.assert_close(got, (1 - BETA) * dft)
    warm = -torch.autograd.grad(OneToken(BETA, 1.3)(batch_of(logits, data))[0], logits)[0]
    assert torch.cosine_similarity(warm, dft, 0) < 0.9999


def test_the_logits_and_the_log_prob_forms_agree_at_neutral_temperature() -> None:
    logits, data = position(3)
    batch = batch_of(logits, data)
    one = torch.autograd.grad(OneToken(BETA)(batch)[0], logits, retain_graph=True)[0]
    other = torch.autograd.grad(OneToken(BETA, 1.0 + 1e-12)(batch)[0], logits)[0]
    torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


def test_sampled_children_under_reinforce_converge_to_the_closed_form() -> None:
    logits, data = position(1)
    kappa, k = 1.3, 200_000
    q = (logits.detach() / kappa).softmax(-1)
    drawn = torch.multinomial(q, k, replacement=True, generator=torch.Generator().manual_seed(0))
    reward = torch.where(drawn == data, 1.0, BETA).double() / k
    logp = logits.log_softmax(-1)[drawn]
    weight = torch.full((k,), 1 / k, dtype=torch.float64)
    batch = Batch(logp, logp.detach(), reward.clamp(min=0), reward.clamp(max=0), weight)
    got = -torch.autograd.grad(Reinforce()(batch)[0], logits)[0]
    torch.testing.assert_close(got, expected_gradient(logits, data, kappa), atol=4e-3, rtol=0)


def test_a_reward_for_other_tokens_as_large_as_the_datas_is_refused() -> None:
    with pytest.raises(ObjectiveError, match="beta=1"):
        OneToken(beta=1.0)
