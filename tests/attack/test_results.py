"""The table of SECURITY.md says what the counts say."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from tests.attack import results
from tests.attack.frame import Case
from tests.attack.registry import attacks


def test_the_page_has_the_table_of_the_results_and_every_attack_a_row() -> None:
    found = json.loads(results.RESULTS.read_text())
    assert results.written(results.PAGE.read_text(), found) == results.PAGE.read_text()
    assert sorted(attacks()) == sorted(name for names in results.ROWS.values() for name in names)
    assert found.keys() <= attacks().keys()


def test_of_a_case_that_was_run_again_the_last_counts(tmp_path: Path) -> None:
    cases = [Case("kills", 0, 0, "x", True), Case("kills", 0, 1, "2 kills, identical", False),
             Case("kills", 0, 2, "y", True), Case("kills", 0, 0, "1 kills, identical", False)]  # fmt: skip
    log = tmp_path / "kills.jsonl"
    log.write_text("".join(json.dumps(asdict(case)) + "\n" for case in cases))
    old = {"commit": "old", "cases": 9, "bad": 0, "outcomes": {}}
    found = results.taken({"sql": old, "kills": old}, "new", [log])
    assert found["sql"] == old
    assert (found["kills"]["cases"], found["kills"]["bad"], found["kills"]["commit"]) == (3, 1, "new")
    assert "| `kills` 3; 3 kills | 2 of 3 | new |" in results.table(found)
