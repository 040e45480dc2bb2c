"""What `brpo` promises beside what all of its kind do."""

from __future__ import annotations

import pytest

from rolltree.credit.registry import load_credit
from rolltree_papers.brpo import study as judged


def test_an_exact_judge_without_a_leak_teaches_quality() -> None:
    curve = judged.qualities(load_credit("grpo"), 0, leak=0.0, noise=0.0)
    assert curve[0] == pytest.approx(0.5)
    assert curve[-1] > 0.95
