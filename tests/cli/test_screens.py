"""On a screen of 80 and of 120 columns no line is longer, and no number of a wide screen is lost or broken."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from rolltree.cli import main
from rolltree.compare.report import Page, ReportFinding, ReportTable, print_page
from rolltree.console import Terminal
from rolltree.tree.store.parquet import save_step
from tests.doctor.planted import PLANTED, group, log
from tests.view.test_decisive_page import decided

NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?%?")
WIDE = 400


class Screen(io.StringIO):
    """Something that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with several findings, a decisive token and a what-if."""
    folder = tmp_path_factory.mktemp("screens") / "run"
    decided(folder)
    save_step([group(f"t{i}", [1, 0, 1, 0]) for i in range(4)], folder / "forests", 60)
    sick = {**PLANTED["zero_variance"], **PLANTED["truncated_answers"], **PLANTED["stale_rollouts"]}
    with (folder / "metrics.jsonl").open("w") as sink:
        sink.writelines(json.dumps(line) + "\n" for line in log(sick))
    return folder


def screen(monkeypatch: pytest.MonkeyPatch, width: int, *words: str) -> str:
    sink = Screen()
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stdout", sink)
    assert main(list(words)) in (0, 1)
    return sink.getvalue()


def held(narrow: str, wide: str, width: int) -> None:
    assert max(len(line.rstrip()) for line in narrow.splitlines()) <= width
    lost = set(NUMBER.findall(wide)) - set(NUMBER.findall(narrow))
    assert not lost, f"lost or broken at {width} columns: {sorted(lost)}\n{narrow}"


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("words", [
    "recipes", "tasks", "models", "credit", "doctor --list", "doctor {run}", "decisive {run} --step 1", "whatif {run}",
    "credit grpo dr_grpo {run} --step 60",
])  # fmt: skip
def test_no_number_is_lost(run: Path, monkeypatch: pytest.MonkeyPatch, width: int, words: str):
    given = words.format(run=run).split()
    held(screen(monkeypatch, width, *given), screen(monkeypatch, WIDE, *given), width)


@pytest.mark.parametrize("width", [80, 120])
def test_a_comparison_keeps_its_numbers(width: int):
    columns = ["arm", "seeds", "eval/pass@1", "95 % interval", "decoded tokens", "cost to target", "a lead of 0.02"]
    rows = [[f"treepo group={8 * i}", str(i), f"0.{41 + i}7", f"0.3{i}1 to 0.5{i}9", f"28{i},400", f"1.{i}M", "holds"]
            for i in range(1, 5)]  # fmt: skip
    verdict = ReportFinding("holds", "holds: treepo leads by 0.0412 (0.0101 to 0.0723) at 284,400 decoded tokens")
    page = Page(title="treepo and grpo", lead="5 seeds", grids=[ReportTable("At the end", columns, rows, "a note")],
                findings=[verdict])  # fmt: skip
    said: dict[int, str] = {}
    for columns_of in (width, WIDE):
        sink = io.StringIO()
        print_page(page, Terminal(file=sink, width=columns_of, force_terminal=True, color_system=None))
        said[columns_of] = re.sub(r"\x1b\[[0-9;]*m", "", sink.getvalue())
    held(said[width], said[WIDE], width)
