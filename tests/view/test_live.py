"""Pages that follow a run, widths of a telephone, and keys alone."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.view.conftest import PATIENCE, Viewer, Window, rectangle
from tests.view.forests import MARKUP, a_line, a_run, add_step

PLACES = (
    "/", "/run?run=first", "/step?run=first&step=1", "/tree?run=first&step=1&tree=t0&node=3",
    "/tree?run=first&step=1&tree=t0&node=6&colour=entropy", "/pair?run=first&step=1&tree=t0&a=3&b=6",
    "/search?run=first&step=1&q=role:policy", "/findings?run=first",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs: one with findings and a prompt of markup, a cached one of a comparison."""
    home = tmp_path_factory.mktemp("home") / "runs"
    first = a_run(home / "first")
    finding = {"step": 1, "name": "collapse", "severity": "critical", "message": "m", "nodes": [], "fix": "f"}
    (first / "findings.jsonl").write_text(json.dumps(finding) + "\n")
    tokens = [{"id": 1, "text": "<bos>", "special": True}, {"id": 2, "text": MARKUP}]
    (first / "prompt.json").write_text(json.dumps({"item": "item 1", "text": MARKUP, "tokens": tokens}))
    (first / "metrics.parquet").write_bytes(b"")
    cached = home / "cmp" / "cache" / "treepo-words-s0-12ab"
    a_run(cached / "run")
    (cached / "spec.json").write_text("{}")
    return home


@pytest.fixture(scope="module")
def home(folder: Path, started: Callable[..., Viewer]) -> Viewer:
    """A viewer on the folder."""
    made = started(folder)
    made.folder = folder
    return made


@pytest.fixture
def tab(browser: Any, home: Viewer, request: pytest.FixtureRequest) -> Iterator[Window]:
    """A fresh tab; a test may ask for another width."""
    wide = getattr(request, "param", 1280)
    context = browser.new_context(viewport={"width": wide, "height": 900})
    context.set_default_timeout(PATIENCE)
    window = Window(context.new_page(), home.address)
    window.page.on("pageerror", lambda error: window.errors.append(str(error)))
    yield window
    context.close()
    assert window.errors == []


def test_the_first_page_shows_state_findings_knobs_and_new_runs_in_place(tab: Window, home: Viewer):
    page = tab.open("/")
    page.wait_for_selector(".curve .main-svg")
    row = page.locator("tr:has(a:text-is('first'))")
    assert row.locator(".badge.done").inner_text() == "done"
    assert row.locator(".badge.grave").inner_text() == "1 critical"
    text = row.inner_text()
    for words in ("7", "group=8 clip=0.2", "2 of 9", "0.2 (0.10–0.40)"):
        assert words in text
    assert "unbiased estimate" in page.locator("th:has-text('eval/pass@1')").get_attribute("title")
    assert page.locator("a:text-is('cmp/cache/treepo-words-s0-12ab')").count() == 1
    # What is there stays the same elements, with the focus and the place one has scrolled to.
    page.evaluate("document.querySelectorAll('tbody tr')[1].dataset.kept = 'yes'")
    page.focus("a:text-is('first')")
    page.evaluate("window.scrollTo(0, 120)")
    at = page.evaluate("window.scrollY")
    assert at > 0
    a_run(home.folder / "later" / "second")
    page.wait_for_selector("a:text-is('later/second')")
    assert page.evaluate("document.activeElement.textContent") == "first"
    assert page.evaluate("document.activeElement.closest('tr').dataset.kept") == "yes"
    assert page.evaluate("window.scrollY") == at


def test_columns_and_smoothing_are_chosen_by_the_address(tab: Window):
    page = tab.open("/?columns=policy/entropy&smooth=5&metrics=reward/mean")
    page.wait_for_selector(".curve .main-svg")
    assert page.locator("th").all_inner_texts() == ["run", "state", "findings", "policy/entropy"]
    assert "mean of 5" in page.locator(".smooth-select").inner_text()
    page = tab.open("/run?run=first&columns=policy/entropy")
    assert page.locator("th").all_inner_texts() == ["step", "rollouts", "policy/entropy"]


def test_the_page_of_a_run_adds_a_step_in_place_and_shows_the_first_prompt(tab: Window, home: Viewer):
    page = tab.open("/run?run=first")
    page.click(".first-prompt")
    page.wait_for_selector(".piece.special:has-text('<bos>')")
    assert MARKUP in page.locator(".piece >> nth=1").inner_text().replace("·", " ")
    page.focus("a.row-link:has-text('step 1')")
    add_step(home.folder / "first", 3)
    with (home.folder / "first" / "metrics.jsonl").open("a") as sink:
        sink.write(json.dumps(a_line(3)) + "\n")
    page.wait_for_selector("a.row-link:has-text('step 3')")
    assert page.evaluate("document.activeElement.textContent") == "step 1"
    assert page.locator(".piece.special").is_visible(), "what was opened stays open"
    assert page.evaluate("window.planted") is None


def test_a_drawing_of_ten_seconds_is_survived(tab: Window):
    page = tab.open("/tree?run=first&step=1&tree=t0&node=3")
    page.wait_for_selector(".icicle[data-drawn]")
    page.evaluate("window.here = 1; const end = Date.now() + 10000; while (Date.now() < end);")
    page.keyboard.press("ArrowUp")
    page.wait_for_selector(".run.chosen[data-node='2']")
    assert page.evaluate("window.here") == 1, "the page was not loaded anew"


def test_a_tree_says_its_question_marks_and_where_one_is(tab: Window):
    page = tab.open("/tree?run=first&step=1&tree=t0&node=3")
    page.wait_for_selector(".icicle[data-drawn='7']")
    assert page.locator(".trail li").all_inner_texts() == ["first", "step 1", "t0"]
    assert page.locator(".asked").inner_text() == "a prompt some words"
    about = page.locator(".tree-about").inner_text()
    assert "step 1" in about
    assert "1 of 2 right" in about
    marks = page.locator(".marks").inner_text()
    assert "◆ forked here" in marks
    assert "pruned" in marks
    page.mouse.move(*rectangle(page, "n6"))
    page.wait_for_selector(".rect-tip[data-key=n6]")
    assert "pruned" in page.locator(".rect-tip[data-key=n6]").inner_text()
    page.hover(".events.there li:has-text('was pruned')")
    page.wait_for_selector(".icicle[data-marked='n6']")
    page.hover("h1")
    page.wait_for_selector(".icicle[data-marked='']")


def test_colourings_without_data_cannot_be_chosen(tab: Window, home: Viewer):
    page = tab.open("/tree?run=first&step=1&tree=t0&node=3")
    page.wait_for_selector(".icicle[data-drawn]")
    assert page.locator(".colours button:disabled").all_inner_texts() == ["value"]
    for path in (home.folder / "bare", home.folder / "bare" / "forests"):
        path.mkdir(exist_ok=True)
    from rolltree.tree import Forest, Tree
    from rolltree.tree.store.parquet import save_step

    tree = Tree("bare", [1, 2])
    tree.extend(0, [3], status="done")
    save_step(Forest([tree]), home.folder / "bare" / "forests", 1)
    page = tab.open("/run?run=first")
    page.goto(tab.address + "/")
    page.wait_for_selector("a:text-is('bare')")
    page = tab.open("/tree?run=bare&step=1&tree=bare")
    page.wait_for_selector(".colour-author.on")
    off = page.locator(".colours button:disabled").all_inner_texts()
    assert off == ["reward", "entropy", "mismatch", "advantage", "staleness", "value"]
    page.keyboard.press("c")
    assert page.locator(".colour-author.on").count() == 1


def test_a_pair_shows_the_first_difference_and_only_facts_that_differ(tab: Window):
    page = tab.open("/pair?run=first&step=1&tree=t0&a=3&b=4")
    cells = page.locator(".difference td").all_inner_texts()
    assert cells[:3] == ["leaf 3", "“g”", "-1"]
    assert cells[5:8] == ["leaf 4", "“w”", "-1"]
    facts = page.locator(".page").inner_text()
    assert "written by" not in facts
    assert "score reward" in facts


def test_search_counts_all_and_gives_paths_and_rewards(tab: Window):
    page = tab.open("/search?run=first&step=1&q=wrong")
    page.wait_for_selector("text=3 found in 21 nodes")
    cells = page.locator("tbody tr >> nth=0 >> td").all_inner_texts()
    assert cells[3:] == ["0 › 1 › 2 › 4", "0"]
    tab.open("/search?run=first&step=1&q=status:pruned").wait_for_selector("text=3 found in 21 nodes")


def test_links_beside_a_node_stand_apart(tab: Window):
    page = tab.open("/tree?run=first&step=1&tree=t0&node=3")
    page.wait_for_selector(".pair-link")
    boxes = [page.locator(f".{name}-link").bounding_box() for name in ("lens", "whatif", "pair")]
    for left, right in itertools.pairwise(boxes):
        assert right["x"] >= left["x"] + left["width"] + 8 or right["y"] >= left["y"] + left["height"]


@pytest.mark.parametrize("tab", [390], indirect=True)
def test_pages_fit_a_telephone(tab: Window):
    more = ("/decisive?run=first", "/lens?run=first&step=1&tree=t0&node=3", "/modes?run=first", "/whatif?run=first",
            "/whatif?run=first&step=1&tree=t0&node=3")  # fmt: skip
    for place in (*PLACES, *more):
        page = tab.open(place)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, place


def test_from_the_runs_to_a_token_by_keys_alone(tab: Window):
    page = tab.open("/")
    page.wait_for_selector("a.row-link:text-is('first')")
    while page.evaluate("document.activeElement.textContent") != "first":
        page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("a.row-link:has-text('step 1')")
    while page.evaluate("document.activeElement.textContent") != "step 1":
        page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("a.row-link:text-is('t0')")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector(".icicle[data-drawn]")
    page.wait_for_function("window.socket?.connected && !document.querySelector('.waiting')")
    page.keyboard.press("Home")
    page.wait_for_selector(".run.chosen[data-node='0']")
    page.keyboard.press("u")
    page.wait_for_selector("h1:has-text('Prompts of step 1')")
