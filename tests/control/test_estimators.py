"""Estimators follow drifting pass rates, know how sure they are, and are what their cards say."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rolltree.control.brief import brief
from rolltree.control.history import Beliefs, History, band
from rolltree.control.order import PLAIN, Delivery, Order, Prompt
from rolltree.task.protocol import Item
from rolltree.tree.store.values import dumps, loads
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
