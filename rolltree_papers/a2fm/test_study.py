"""What `a2fm` promises beside what all of its kind do."""

from __future__ import annotations

import pytest

from rolltree.recipe.registry import load_recipe
from rolltree_papers.a2fm import study
from studies.exact.modes import Cost


def test_what_is_counted_rests_under_a_fixed_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "STEPS", 5)
    parts = load_recipe("a2fm").build()
    assert study.routed(0, parts.shapers[0], parts.credit)[1] > 0
    assert study.routed(0, Cost(), parts.credit)[1] == 0
