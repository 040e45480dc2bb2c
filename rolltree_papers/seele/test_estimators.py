"""What `seele` promises beside what all of its kind do."""

import pytest

from rolltree_papers.seele import Curve, fit_curve


def test_the_curve_is_found_again_and_inverted():
    truth = Curve(0.1, 9.0, -0.45)
    rates = [0.0, 0.2, 0.4, 0.5, 0.7, 0.9]
    found = fit_curve(rates, [truth(r) for r in rates], [200] * 6)
    assert found.inverse(0.5) == pytest.approx(truth.inverse(0.5), abs=0.03)
    assert truth(truth.inverse(0.5)) == pytest.approx(0.5)
    assert Curve(0.6, 9.0, -0.45).inverse(0.5) == 0.0
    assert fit_curve([0.9], [1.0], [8]).inverse(0.5) < 0.9, "too easy: show less next time"
    assert fit_curve([0.2], [0.0], [8]).inverse(0.5) > 0.3, "too hard: show more next time"
