"""The small worlds behind the evidence of credit and objective recipes: what they are made of; seeds decide."""

from __future__ import annotations

import numpy as np
import pytest

from rolltree.credit.registry import load_credit
from rolltree.objective.registry import load_objective
from studies.exact import judged, languages
from studies.exact.checks import noise
from studies.exact.languages import BAD, TOKENS, bad_rate, corpus, lost_at, mended, written
from studies.prompts import chain


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
    first, again = (languages.judged("preference", 3, steps=4, prefixes=6) for _ in range(2))
    assert first == again
    assert first[-1] < first[0]
    assert languages.judged("found", 3, steps=1, prefixes=2)[0] == first[0]
    assert TOKENS > BAD


def test_fine_tuning_starts_where_the_first_language_was_learned() -> None:
    curves = [
        languages.tuned(load_objective(name, **knobs), 0, steps=3)
        for name, knobs in (("reinforce", {}), ("one_token", {"kappa": 1.2}))
    ]
    assert curves[0][0] == curves[1][0]
    assert curves[0][0][1] == 0
    assert curves[0][-1] != curves[1][-1]
    assert lost_at([(0.1, 0.0), (0.4, 2.0), (0.6, 3.0)], 0.3) == 2.0
    assert lost_at([(0.1, 0.0), (0.2, 1.0)], 0.9) == 1.0


def test_an_exact_judge_without_a_leak_teaches_quality() -> None:
    curve = judged.qualities(load_credit("grpo"), 0, leak=0.0, noise=0.0)
    assert curve[0] == pytest.approx(0.5)
    assert curve[-1] > 0.95


def test_more_rollouts_are_less_noisy_and_make_more_calls() -> None:
    (few, used), (many, more) = noise("rloo", 2, "flat", 0), noise("rloo", 8, "flat", 0)
    assert many < few
    assert more > 3 * used


def test_masked_hints_are_not_unlearned() -> None:
    """After one step the shown digits of a hint whose rollouts mostly failed are less likely only without the mask."""
    policy = chain._softmax(chain.start(np.random.default_rng(0)))[0]
    tree = chain.Tree("p0", [0])
    rng = np.random.default_rng(2)
    for _ in range(8):
        chain._rolled(tree, policy, 4, rng)
    leaves = tree.leaves()
    for i, leaf in enumerate(leaves):
        leaf.scores["reward"] = float(i == 0)
    pushes = [
        chain._direction([tree], policy[None], chain.HintWay(lambda _: 0.5, "hinted", masked))[0, :4, 0]
        for masked in (True, False)
    ]
    assert (pushes[0] >= 0).all()
    assert np.abs(pushes[0] - pushes[1]).max() > 0
    np.testing.assert_allclose(chain.success(np.zeros((1, 8, 10))), 1e-8)
