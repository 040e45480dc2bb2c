"""What `stagent` promises beside what all of its kind do."""

from rolltree_papers.stagent import study as stagent_study
from studies.prompts.world import Log


def test_rollouts_that_measure_are_counted():
    logs = [Log([], 8, 4, 100), Log([], 8, 6, 400)]
    assert stagent_study.yielded(logs) == 20
