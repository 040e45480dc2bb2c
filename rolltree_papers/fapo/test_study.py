"""The evidence of FAPO counts what it should."""

from __future__ import annotations

from rolltree_papers.fapo.study import fapo


def test_both_arms_of_fapo_see_the_flaws_and_one_halves_them() -> None:
    found = fapo(1)
    assert set(found.curves) == {"FAPO", "outcome alone", "flawed is wrong"}
    assert all(y[0] == found.curves["FAPO"][1][0] for _, y in found.curves.values())
    assert found.baseline == found.curves["flawed is wrong"][1][-1]
    assert min(found.value, found.baseline) > found.curves["outcome alone"][1][-1] + 0.5
    assert all(count > 0 for count in found.acted.values())
