"""What `rtv` promises beside what all of its kind do."""

from __future__ import annotations

import pytest

from rolltree_papers.rtv.study import winner_right
from studies.roles import ALONE, grown, right, waves


def test_a_tournament_of_a_policys_attempts_is_won_as_the_oracle_says() -> None:
    forest = grown(waves(waves=1), 5, items=80)
    exact = winner_right(ALONE, 0.65, 8, 4)
    assert exact == pytest.approx(0.841, abs=1e-3)
    assert right(forest) == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 80) ** 0.5)
    assert all(sum("chosen" in leaf.scores for leaf in tree.leaves()) == 1 for tree in forest)
