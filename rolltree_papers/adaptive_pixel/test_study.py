"""What `adaptive_pixel` promises beside what all of its kind do."""

from __future__ import annotations

import pytest

from rolltree.recipe.registry import load_recipe
from rolltree_papers.adaptive_pixel import study
from studies.exact.modes import Cost


def test_what_is_counted_rests_under_a_fixed_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "STEPS", 5)
    parts = load_recipe("adaptive_pixel").build()
    assert study.trained(0, study.KINDS, parts.shapers[0], parts.credit)[1] > 0
    assert study.trained(0, study.KINDS, Cost(), parts.credit)[1] == 0
