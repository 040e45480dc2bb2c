"""What `sage` promises beside what all of its kind do."""

from __future__ import annotations

import pytest

from rolltree.metrics.reward import waves as waves_of
from rolltree.metrics.rollouts import Rollouts
from rolltree.tree.table import table
from studies.roles import ALONE, grown, waves


def test_what_a_second_attempt_breaks_and_mends_is_measured_as_it_is_known() -> None:
    from rolltree_papers.sage.study import regressed

    for follows in (0.9, 0.1):
        found = regressed(follows, 3, 300)
        rights = 300 * ALONE
        assert found["reward/regressed"] == pytest.approx(1 - follows, abs=3 * (0.09 / rights) ** 0.5)
        assert found["reward/mended"] == pytest.approx(ALONE, abs=3 * (ALONE * (1 - ALONE) / (300 - rights)) ** 0.5)
    flat = grown(waves(4, waves=1), 0, 4)
    assert "first_wave" in flat["train-0-0"].root.scores
    assert waves_of(Rollouts(table([flat["train-0-0"]]))) == {}, "one wave broke and mended nothing"
