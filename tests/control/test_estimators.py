"""Estimators follow drifting pass rates, know how sure they are, and are what their cards say."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rolltree.control.brief import brief
from rolltree.control.history import Beliefs, History, band
from rolltree.control.order import PLAIN, Delivery, Order, Prompt
from rolltree.task.protocol import Item
from rolltree.tree.store.values import dumps, loads
from rolltree_papers.dars import top_up
from rolltree_papers.dots import fit_attention
from rolltree_papers.gdro import Bins, DualPrice, Exp3P
from rolltree_papers.seele import Curve, fit_curve
from rolltree_papers.v05 import expected_error, shrinkage
from rolltree_papers.xrpo import half_width, priority
from studies.prompts.checks import predicted
from studies.prompts.page import coverage

PATIENT = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def delivery(uid: str, rewards: list[float], arm: str = PLAIN) -> Delivery:
    shown = None if arm == PLAIN else brief("hint")
    return Delivery(Order(Prompt(Item(uid, "?", 1), 0), arm=arm, brief=shown), tuple(rewards))


def test_an_assisted_success_never_counts_as_an_unassisted_one():
    history = History()
    history.observe([delivery("a", [0, 0]), delivery("a", [1, 1, 1], "hint")], 1)
    assert history.rate("a") == 0
    assert history.tally("a", "hint").rate == 1
    history.observe([delivery("b", [1], "hint")], 1)
    assert history.rate("b") is None
    assert [band(history.rate(uid)) for uid in "ab"] == ["never", "new"]


def test_history_forgets_what_was_seen_longest_ago_and_survives_storing():
    history = History(window=3, most=2)
    for step, uid in enumerate("abac"):
        history.observe([delivery(uid, [1, 0, 0, 0])], step)
    assert set(history.arms) == {"a", "c"}
    assert history.rate("a") == 0
    assert history.tally("a").solved == 2
    assert loads(dumps(history)) == history


def test_beliefs_are_calibrated_under_drift_only_if_they_forget():
    forgets, _ = coverage(0.5, 0.98, seed=0, steps=60)
    keeps, _ = coverage(1.0, 1.0, seed=0, steps=60)
    assert forgets > 0.8
    assert keeps < forgets - 0.05


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 8)), max_size=40))
@PATIENT
def test_the_mass_of_evidence_stays_bounded(visits):
    beliefs = Beliefs(visit=0.9, idle=1.0)
    for solved, n in visits:
        beliefs.observe("a", min(solved, n), n)
    a, b = beliefs.at("a")
    assert a >= 1
    assert b >= 1
    assert a + b <= 2 + 8 / (1 - 0.9) + 1e-6


def test_what_is_not_visited_becomes_uncertain_again():
    beliefs = Beliefs()
    beliefs.observe("a", 8, 8)
    sure = beliefs.variance("a")
    beliefs.step = 1000
    assert beliefs.variance("a") > 5 * sure
    assert beliefs.mean("a") == pytest.approx(0.5, abs=0.05)


def test_bins_change_only_past_the_margin():
    bins = Bins(count=10, window=0, margin=0.05, graded=True)
    bins.observe("a", 0.59, 1)
    assert bins.of("a") == 5
    bins.observe("a", 0.64, 1)  # mean 0.615: past the border at 0.6, not by enough
    assert bins.of("a") == 5
    bins.observe("a", 1.0, 1)
    assert bins.of("a") == 7
    for _ in range(200):
        bins.observe("a", 1.0, 1)
    assert bins.of("a") == 9
    assert bins.of("never seen") == 5


def test_darss_top_ups_are_those_of_the_released_code():
    rates = (0, 1 / 8, 2 / 8, 3 / 8, 4 / 8, 1.0)
    assert [top_up(p, 8, "even", most=32) for p in rates] == [24, 11, 3, 1, 0, 0]
    assert [top_up(p, 8, "hard", most=64) for p in rates] == [56, 24, 8, 3, 0, 0]


@given(st.integers(1, 7))
@PATIENT
def test_an_even_top_up_lifts_hard_prompts_to_the_peak_mass(solved):
    p, n = solved / 16, 16
    total = n + top_up(p, n, "even", most=10_000)
    assert total * 2 * p * (1 - p) >= n / 2 - 1e-9
    assert (total - 1) * 2 * p * (1 - p) < n / 2 + 1e-9 or total == n


def test_xrpos_priority_narrows_with_rollouts_and_dead_prompts_keep_the_bonus():
    assert half_width(0.5, 4) == pytest.approx(3.182446 * 0.25, rel=1e-5)
    gains = [priority(0.5, n, 100, explore=0.0) for n in range(2, 12)]
    assert gains == sorted(gains, reverse=True)
    assert priority(0.0, 4, 100) > priority(0.0, 8, 100) > 0
    assert np.isfinite(priority(0.5, 1, 100))


def test_shrinkage_trusts_a_prior_within_the_noise_and_drops_one_far_off():
    assert shrinkage(0.5, 0.5, 4) == 1
    assert shrinkage(0.5, 0.75, 4) == 1  # one standard error away
    assert shrinkage(0.9, 0.0, 100) < 0.01
    assert expected_error(0.5, 0.5, 4) == 0
    assert expected_error(0.9, 0.1, 4) > expected_error(0.9, 0.1, 4, 1)


def test_the_curve_is_found_again_and_inverted():
    truth = Curve(0.1, 9.0, -0.45)
    rates = [0.0, 0.2, 0.4, 0.5, 0.7, 0.9]
    found = fit_curve(rates, [truth(r) for r in rates], [200] * 6)
    assert found.inverse(0.5) == pytest.approx(truth.inverse(0.5), abs=0.03)
    assert truth(truth.inverse(0.5)) == pytest.approx(0.5)
    assert Curve(0.6, 9.0, -0.45).inverse(0.5) == 0.0
    assert fit_curve([0.9], [1.0], [8]).inverse(0.5) < 0.9, "too easy: show less next time"
    assert fit_curve([0.2], [0.0], [8]).inverse(0.5) > 0.3, "too hard: show more next time"


def test_attention_predicts_what_texts_tell_and_beats_what_was_last_seen():
    ours, seen, _ = predicted(0, steps=10)
    assert ours > seen
    assert ours > 0.7
    assert fit_attention(["a"], [0.3]).predict(["b"]) == pytest.approx(0.3)


def test_bandits_follow_what_they_see_and_the_price_follows_use():
    game = Exp3P(3, eta=2.0, gamma=0.3, beta=0.5)
    for _ in range(20):
        game.observe(1, 1.0)
    shares = game.shares()
    assert shares.sum() == pytest.approx(1)
    assert shares[1] == max(shares)
    assert min(shares) >= 0.3 / 3
    price = DualPrice(0.1)
    price.observe(10, 8)
    assert price.price == pytest.approx(0.2)
    price.observe(0, 8)
    assert price.price == 0
