"""The draw and the streams it draws from."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.engine.local.sampling import SamplingRows, draw, stream_key, uniforms
from rolltree.testing.engine import misfit, truncated


def keys(n):
    return np.array([stream_key(i) for i in range(n)], np.uint64)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.sampled_from([0.3, 1.0, 2.0]), st.sampled_from([0, 1, 3, 50]), st.floats(0.05, 1.0))
def test_sampling_logprob_is_the_truncated_distribution_row_by_row(seed, temperature, top_k, top_p):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (4, 11))
    logp = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    distribution = SamplingRows.of(
        np.array([temperature, 1.0, 0.0, temperature]),
        np.array([top_k, 0, top_k, 0]),
        np.array([top_p, 1.0, top_p, 1.0]),
        11,
        torch.device("cpu"),
    )
    got = draw(torch.from_numpy(logits), distribution, torch.from_numpy(rng.random(4)))
    token = got.token.numpy()
    for row, knobs in enumerate([(temperature, top_k, top_p), (1.0, 0, 1.0), None, (temperature, 0, 1.0)]):
        if knobs is None:
            assert token[row] == logits[row].argmax()
            assert torch.isnan(got.sampling_logprob[row])
        else:
            assert float(got.sampling_logprob[row]) == pytest.approx(truncated(logp[row], *knobs)[token[row]], abs=1e-9)
            assert torch.isfinite(got.sampling_logprob[row])


@pytest.mark.parametrize("u", [0.0, 0.5, 1 - 2.0**-53])
def test_a_token_of_probability_zero_is_never_drawn(u):
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 1.0, -torch.inf]])
    assert int(draw(logits, SamplingRows(), torch.tensor([u], dtype=torch.float64)).token) in (1, 3)


def test_large_vocabularies_keep_their_distribution():
    """Inverse CDF over 50,000 nearly equal tokens: float32 sums would favour some of them."""
    logits = torch.zeros(1, 50_000)
    u = torch.linspace(0, 1 - 1e-9, 200, dtype=torch.float64)
    token = draw(logits.expand(200, -1), SamplingRows(), u).token.double()
    assert (token - u * 50_000).abs().max() <= 1.5


def test_streams_are_uniform_independent_and_do_not_overlap():
    table = np.stack([uniforms(keys(400), np.full(400, t)) for t in range(100)])
    assert table.min() >= 0
    assert table.max() < 1
    assert len(np.unique(table)) == table.size
    counts = np.histogram(table, bins=50, range=(0, 1))[0]
    assert misfit(counts, np.full(50, -np.log(50))) < 4.5
    for a, b in ((table[1:], table[:-1]), (table[:, 1:], table[:, :-1])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 4.5 / np.sqrt(a.size)


def test_any_integer_is_a_seed():
    assert len({stream_key(seed) for seed in (-1, 0, 1, 2**63, 2**70 + 1)}) == 5
