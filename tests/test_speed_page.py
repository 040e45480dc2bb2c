"""The tables of docs/speed.md are those of the baselines."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("speed_page", ROOT / "benchmarks" / "page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_tables_of_the_baselines(page: ModuleType) -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.rendered(text) == text, "run python benchmarks/page.py"


def test_no_table_of_the_page_is_empty(page: ModuleType) -> None:
    assert [name for name, make in page.TABLES.items() if make().count("\n") < 2] == []


def test_a_page_without_a_tables_lines_is_refused(page: ModuleType) -> None:
    with pytest.raises(SystemExit, match="has no lines <!-- table summary"):
        page.rendered("# Speed")


def test_a_new_number_comes_into_its_table_and_prose_stays(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "BASELINES", tmp_path)
    marks = "".join(f"{page.begin(name)}\nold\n{page.END}\nprose of {name}\n" for name in page.TABLES)
    bare = page.rendered(marks)
    rate = {"flight": 1000, "rate_min": 1.0, "rate_median": 19_999.0, "rate_max": 3.0}
    (tmp_path / "hand.json").write_text(json.dumps({"machine": {}, "rows": [rate]}))
    text = page.rendered(marks)
    assert "old" not in bare + text
    assert [line for line in text.splitlines() if line not in bare.splitlines()] == [
        "| hand, operations a second | 19,999 | 20,000 | **missed** |"
    ]
    assert all(f"prose of {name}\n" in text for name in page.TABLES)
