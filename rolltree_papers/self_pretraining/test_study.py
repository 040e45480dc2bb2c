"""What `self_pretraining` promises beside what all of its kind do."""

from __future__ import annotations

import numpy as np
import pytest

from rolltree_papers.self_pretraining import study as self_pretraining_study
from rolltree_papers.self_pretraining.study import BAD, TOKENS, bad_rate, corpus, mended, written


def test_a_mended_text_has_no_bad_tokens_and_the_found_one_breeds_them() -> None:
    distribution = corpus(np.random.default_rng(0))
    np.testing.assert_allclose(distribution.sum(1), 1)
    np.testing.assert_allclose(mended(distribution).sum(1), 1)
    assert bad_rate(mended(distribution)) == 0
    assert bad_rate(distribution) > 0.2
    rng = np.random.default_rng(1)
    seen = np.mean([token < BAD for _ in range(800) for token in written(distribution, int(rng.integers(BAD)), rng)])
    assert seen == pytest.approx(bad_rate(distribution), abs=0.05)
    assert all(token >= BAD for token in written(mended(distribution), 0, rng))


def test_preference_lowers_the_bad_rate_and_the_seed_decides() -> None:
    first, again = (self_pretraining_study.judged("preference", 3, steps=4, prefixes=6) for _ in range(2))
    assert first == again
    assert first[-1] < first[0]
    assert self_pretraining_study.judged("found", 3, steps=1, prefixes=2)[0] == first[0]
    assert TOKENS > BAD
