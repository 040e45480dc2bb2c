"""What `v05` promises beside what all of its kind do."""

from rolltree_papers.v05 import study as v05_study
from rolltree_papers.v05.study import v05


def test_a_wrong_prior_costs_rollouts_and_a_right_one_saves_error():
    right, wrong = (v05_study.baseline_error(kind, 0) for kind in ("right", "always 0.9"))
    assert wrong[2] > right[2]
    assert wrong[0] < wrong[1], "more rollouts mend what shrinkage alone spoils"


def test_the_claim_holds_on_simulated_prompts():
    found, again = v05(0), v05(0)
    assert found.value < found.baseline
    assert (again.value, again.baseline) == (found.value, found.baseline)
