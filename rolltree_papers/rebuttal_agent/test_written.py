"""What `rebuttal_agent` promises beside what all of its kind do."""

from __future__ import annotations

from rolltree_papers.rebuttal_agent import study as rebuttal
from tests.studies.exact.test_written import ids


def test_the_truth_refuses_templates_and_other_concerns() -> None:
    def met(said: str) -> float:
        return rebuttal.met(1, ids(rebuttal.WORDS, f"<a> moon moon {said}"))

    assert met("baselines moon green seven often") == 1.0
    assert met("baselines thank reviewer will moon") == 0.0
    assert met("baselines theory green seven often") == 0.0
    assert met("moon green seven often door") == 0.0
    world = rebuttal.Reviews(0)
    thanks = world.graded(1, ids(rebuttal.WORDS, "<a> moon moon thank reviewer will revise paper"))
    other = world.graded(1, ids(rebuttal.WORDS, "moon <a> moon baselines moon green seven often"))
    assert (thanks["format"], other["format"]) == (1.0, 0.0)
    assert other["diversity"] > 0.5 > thanks["diversity"]
