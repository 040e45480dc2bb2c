"""The page of learning curves is written from the runs' own numbers."""

import json
from pathlib import Path

from rolltree.compare.trace import Trace
from studies.nano.learn import BUDGETS, LearnSettings, write


def run(seed: int, end: float) -> Trace:
    costs = (0.0, BUDGETS["grid"] / 2, float(BUDGETS["grid"]))
    rows = tuple(
        {"decoded": cost, "trained": cost, "seconds": cost / 1000, "pass@1": value, "pass@8": 0.9}
        for cost, value in zip(costs, (0.1, 0.3, end), strict=True)
    )
    return Trace("grpo", seed, rows)


def test_page_figure_and_numbers_agree(tmp_path: Path) -> None:
    write(LearnSettings(out=tmp_path, seeds=2), {"grid": [run(0, 0.5), run(1, 0.7)]})
    page = (tmp_path / "learning.md").read_text()
    assert "10% → 50%, 10% → 70%" in page
    assert "+50 (-77 to +177)" in page
    assert "--tasks grid --seeds 2" in page
    assert (tmp_path / "learning.svg").read_text().count("grid, seed") == 2
    kept = json.loads((tmp_path / "learning.json").read_text())
    assert [row["eval/pass@1"] for row in kept["grid"][1]["rows"]] == [0.1, 0.3, 0.7]
