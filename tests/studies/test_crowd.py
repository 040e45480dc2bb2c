"""Judges of unequal worth: agreement by hand, spammers, scales, evidence, criteria and corrections."""

from __future__ import annotations

import numpy as np
import pytest

from rolltree.generate.judge.calibration import alpha
from studies.crowd import corrected, criteria, crowd, judged, merged

SEEDS = range(8)


def mean(numbers: object) -> float:
    return float(np.mean(list(numbers)))  # type: ignore[call-overload]


def test_agreement_by_hand() -> None:
    assert alpha(np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]])) == 1.0
    # Observed: (1 + 1)/4; expected: pairs of 0, 0, 1, 1 that differ, 8 of 12.
    assert alpha(np.array([[0.0, 1.0], [1.0, 0.0]])) == pytest.approx(1 - 1.0 / (8 / 12))
    assert alpha(np.array([[0.0, np.nan], [0.0, 1.0]])) != alpha(np.array([[0.0, 0.0], [0.0, 1.0]]))
    assert np.isnan(alpha(np.array([[1.0, 1.0], [1.0, 1.0]])))


def test_a_scale_is_merged_step_by_step_and_what_was_not_said_stays_unsaid() -> None:
    six = np.array([[0.0, 0.2, 0.4, 0.6, 0.8, 1.0, np.nan]])
    assert merged(six, 3)[0, :6].tolist() == [0.0, 0.0, 0.5, 0.5, 1.0, 1.0]
    assert merged(six, 2)[0, :6].tolist() == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    assert np.isnan(merged(six, 2)[0, 6])


def test_with_spammers_reliabilities_are_ahead_of_the_mean_and_agreement_falls() -> None:
    spammed, honest = ([crowd(s, spammers=share) for s in SEEDS] for share in (0.4, 0.0))
    assert mean(judged(c, "reliability") for c in spammed) > mean(judged(c, "mean") for c in spammed)
    assert mean(judged(c, "reliability") for c in honest) < mean(judged(c, "mean") for c in honest) + 0.01
    assert mean(alpha(c.grades) for c in spammed) < mean(alpha(c.grades) for c in honest)


def test_evidence_helps_only_where_it_goes_with_being_right() -> None:
    gain = {}
    for linked in (True, False):
        made = [crowd(s, judges=6, noise=2.5, linked=linked) for s in SEEDS]
        gain[linked] = mean(judged(c, "mean", needs_evidence=True) - judged(c, "mean") for c in made)
    assert gain[True] > gain[False]
    assert gain[False] < 0


def test_a_fit_of_criteria_is_ahead_of_their_mean_and_of_one_and_slices_differ() -> None:
    found = [criteria(s) for s in SEEDS]
    fitted, average, first = (mean(f[name] for f in found) for name in ("fitted", "mean", "first"))
    assert fitted > average > first
    assert mean(f["fitted, popular"] - f["fitted, others"] for f in found) > 0.05


def test_a_fitted_corrector_is_ahead_of_asking_the_generator_again() -> None:
    none, own, other = (mean(corrected(s, by) for s in SEEDS) for by in ("nobody", "itself", "corrector"))
    assert other > none > own
