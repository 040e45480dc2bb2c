"""What `v05` promises beside what all of its kind do."""

from rolltree_papers.v05 import expected_error, shrinkage


def test_shrinkage_trusts_a_prior_within_the_noise_and_drops_one_far_off():
    assert shrinkage(0.5, 0.5, 4) == 1
    assert shrinkage(0.5, 0.75, 4) == 1  # one standard error away
    assert shrinkage(0.9, 0.0, 100) < 0.01
    assert expected_error(0.5, 0.5, 4) == 0
    assert expected_error(0.9, 0.1, 4) > expected_error(0.9, 0.1, 4, 1)
