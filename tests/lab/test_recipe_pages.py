"""The recipe pages are written from the cards, say what was not measured, and stand as committed."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rolltree.engine.local import LocalEngine
from rolltree.recipe.check import check
from rolltree.recipe.registry import list_recipes, load_recipe
from rolltree.task.registry import load_task
from studies.lab.entry import load_entries
from studies.lab.evidence_pages import overview
from studies.lab.recipe_pages import DOCS, TABLE, example_task, index, page, write

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def nano() -> Iterator[LocalEngine]:
    engine = LocalEngine("nano")
    yield engine
    asyncio.run(engine.close())


def test_every_recipe_has_a_page_with_its_knobs(tmp_path: Path) -> None:
    (tmp_path / "gone.md").write_text("of a recipe that was removed")
    written = write(tmp_path, tmp_path / "no-evidence")
    assert {p.stem for p in written} == {c.name for c in list_recipes()} | {"index"}
    assert not (tmp_path / "gone.md").exists()
    assert "| `clip_high` | `0.28` |" in (tmp_path / "dapo.md").read_text()


def test_what_was_not_measured_is_not_claimed(tmp_path: Path) -> None:
    assert "Not measured yet" in page("grpo", tmp_path)
    assert "not measured yet" in index(tmp_path)


@pytest.mark.parametrize("name", ["index", *(c.name for c in list_recipes())])
def test_the_committed_pages_are_what_the_cards_say(name: str) -> None:
    evidence = ROOT / "evidence"
    expected = index(evidence) if name == "index" else page(name, evidence)
    assert (ROOT / DOCS / f"{name}.md").read_text() == expected, "run python -m studies.lab.recipe_pages"


def test_every_page_of_the_documentation_is_in_its_navigation() -> None:
    listed = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    pages = [page for page in pages if not page.startswith("measured/tables/")]  # they are parts of measured/tables.md
    assert sorted(listed) == sorted(pages)


def test_every_recipe_accepts_the_task_of_its_example(nano: LocalEngine) -> None:
    for card in list_recipes():
        recipe = load_recipe(card.name)
        check(recipe.build(), nano, load_task(example_task(recipe)))


def test_the_committed_table_is_what_was_found() -> None:
    assert (ROOT / TABLE).read_text() == overview(load_entries(ROOT / "evidence")), (
        "run python -m studies.lab.recipe_pages"
    )
