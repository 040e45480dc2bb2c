"""Each case of the study of fixes is one that the doctor offers, and its page says what came out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rolltree.doctor import detectors
from rolltree.recipe.registry import load_recipe
from rolltree.training.config import TrainConfig
from rolltree.training.start import with_knobs
from studies.fixes import CASES, page, verdict


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.finding)
def test_a_case_is_a_fault_and_a_fix_that_the_doctor_offers(case) -> None:
    assert case.offered() in detectors()[case.finding].fixes
    for setup in (case.fault, case.mended):
        load_recipe(setup.recipe, **setup.knobs)
        with_knobs(TrainConfig(), setup.train)
    assert case.fault != case.mended


def run(stands: float, after: float) -> dict[str, float]:
    return {"stands": stands, "after": after, "number": 0.5, "before": 0.1, "decoded": 1000.0}


def test_a_fix_helps_only_where_all_seeds_agree() -> None:
    sick = [run(1, 0.1), run(1, 0.2)]
    assert verdict(sick, [run(0, 0.2), run(0, 0.3)]) == "gone; more answers right"
    assert verdict(sick, [run(1, 0.2), run(1, 0.1)]) == "still there; no clear change of right answers"
    assert verdict(sick, [run(1, 0.05), run(0, 0.1)]) == "fewer; fewer answers right"


def test_the_committed_page_is_written_from_the_committed_numbers() -> None:
    folder = Path("docs/measured")
    kept = json.loads((folder / "fixes.json").read_text())
    assert (folder / "fixes.md").read_text(encoding="utf-8") == page(kept), "run python -m studies.fixes --page-only"
    assert sum(f"| [{case.finding}]" in page(kept) for case in CASES) >= 5
