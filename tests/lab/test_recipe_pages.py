"""The recipe pages are written from the cards, say what was not measured, and stand as committed."""

import asyncio
import re
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rolltree.engine.local import LocalEngine
from rolltree.recipe.check import check
from rolltree.recipe.registry import list_recipes, load_recipe
from rolltree.task.registry import load_task
from studies.lab.entry import load_entries
from studies.lab.evidence_pages import overview
from studies.lab.places import DOCS, EVIDENCE, page_of
from studies.lab.recipe_pages import TABLE, example_task, index, page, write

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def nano() -> Iterator[LocalEngine]:
    engine = LocalEngine("nano")
    yield engine
    asyncio.run(engine.close())


def test_every_recipe_has_a_page_with_its_knobs(tmp_path: Path) -> None:
    gone = [tmp_path / DOCS / "gone.md", tmp_path / "rolltree_papers" / "gone" / "page.md"]
    for path in gone:
        path.parent.mkdir(parents=True)
        path.write_text("of a recipe that was removed")
    written = write(tmp_path, tmp_path / "no-evidence")
    assert len({*written}) == len(list_recipes()) + 1
    assert {page_of(c.name, tmp_path) for c in list_recipes()} <= {*written}
    assert not any(path.exists() for path in gone)
    assert "| `clip_high` | `0.28` |" in (tmp_path / DOCS / "dapo.md").read_text()


def test_what_was_not_measured_is_not_claimed(tmp_path: Path) -> None:
    assert "Not measured yet" in page("grpo", tmp_path)
    assert "not measured yet" in index(tmp_path)


@pytest.mark.parametrize("name", ["index", *(c.name for c in list_recipes())])
def test_the_committed_pages_are_what_the_cards_say(name: str) -> None:
    expected = index() if name == "index" else page(name)
    place = ROOT / DOCS / "index.md" if name == "index" else page_of(name)
    assert place.read_text() == expected, "run python -m studies.lab.recipe_pages"


def test_every_page_of_the_documentation_is_in_its_navigation() -> None:
    listed = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    pages = [page for page in pages if not page.startswith("measured/tables/")]  # they are parts of measured/tables.md
    # Those of recipes are added by docs/hooks.py.
    assert sorted(listed) == sorted(page for page in pages if page == "recipes/index.md" or "recipes/" not in page)


def test_every_recipe_accepts_the_task_of_its_example(nano: LocalEngine) -> None:
    for card in list_recipes():
        recipe = load_recipe(card.name)
        check(recipe.build(), nano, load_task(example_task(recipe)))


def test_the_committed_table_is_what_was_found() -> None:
    assert TABLE.read_text() == overview(load_entries(EVIDENCE)), "run python -m studies.lab.recipe_pages"


def test_links_of_the_repository_lead_to_the_page_of_a_paper() -> None:
    """In the documentation, the index and the table of evidence, and from the pages of papers back."""
    known = {path.resolve() for path in (ROOT / "docs").rglob("*.md")} | {page_of(c.name) for c in list_recipes()}
    for path in known:
        for target in re.findall(r"\]\(((?:\.\./)+(?:rolltree_papers|docs)/[^)#\s]*\.md)", path.read_text()):
            assert (path.parent / target).resolve() in known, f"{path} links to {target}"


@pytest.fixture(scope="module")
def hooks() -> Any:
    pytest.importorskip("mkdocs")
    spec = spec_from_file_location("docs_hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_site_has_every_page_of_a_paper_in_its_navigation(hooks: Any) -> None:
    nav = hooks.on_config({"nav": [{"Recipes": [{"Paper index": "recipes/index.md"}]}]})["nav"][0]["Recipes"]
    assert [next(iter(entry)) for entry in nav[1:]] == [card.name for card in list_recipes()]


@pytest.mark.parametrize(
    ("page", "link", "site"),
    [
        ("recipes/first.md", "[howto](../../docs/howto/regimes.md)", "[howto](../howto/regimes.md)"),
        ("credit.md", "[first](../rolltree_papers/first/page.md#evidence)", "[first](recipes/first.md#evidence)"),
        ("howto/judges.md", "[two](../../rolltree_papers/first/page-two.md)", "[two](../recipes/two.md)"),
        ("howto/judges.md", "[gone](../../rolltree_papers/gone/page.md) stays", "gone stays"),
        ("credit.md", "in [the code](../rolltree/tree/table.py)", "in the code"),
        ("howto/judges.md", "[core](../recipes/grpo.md)", "[core](../recipes/grpo.md)"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(
    hooks: Any, monkeypatch: pytest.MonkeyPatch, page: str, link: str, site: str
) -> None:
    there = {"first": "rolltree_papers/first/page.md", "two": "rolltree_papers/first/page-two.md"}
    monkeypatch.setattr(hooks, "pages", lambda: {name: ROOT / path for name, path in there.items()})
    of_site = SimpleNamespace(file=SimpleNamespace(src_uri=page))
    assert hooks.on_page_markdown(link, of_site, None, None) == site
