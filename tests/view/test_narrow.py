"""Many leaves side by side: rectangles narrower than 6 pixels have no border, wherever a tree is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rolltree.cli import main
from rolltree.tree import Forest, Tree
from rolltree.tree.store.parquet import save, save_step
from tests.view.conftest import PATIENCE, Viewer, Window

LEAVES = 700
COUNT = """() => {
  window.strokes = [];
  const stroke = CanvasRenderingContext2D.prototype.strokeRect;
  CanvasRenderingContext2D.prototype.strokeRect = function (x, y, w, h) {
    window.strokes.push(w);
    stroke.call(this, x, y, w, h);
  };
}"""
BORDERED = "all => all.map(e => [e.getBoundingClientRect().width, parseFloat(getComputedStyle(e).borderLeftWidth)])"


def a_wide_tree(at: int = 0) -> Tree:
    """Half of the leaves below one node, the others beside it."""
    tree = Tree(f"wide{at}", [5], item="the item", task="words")
    middle = tree.extend(tree.root, [1], status="done")
    for i in range(LEAVES):
        above = middle if i % 2 else tree.root
        tree.extend(above, [2 + i], status="done", scores={"reward": float(i % 3 == 0)})
    return tree


@pytest.fixture(scope="module")
def wide(started: Callable[..., Viewer], tmp_path_factory: pytest.TempPathFactory) -> Viewer:
    folder = tmp_path_factory.mktemp("wide")
    save(Forest([a_wide_tree()]), folder / "forest")
    for at in (1, 2):
        save_step(Forest([a_wide_tree(at)]), folder / "over", at)
    made = started(folder)
    made.folder = folder
    return made


@pytest.fixture
def tab(browser: Any, wide: Viewer) -> Iterator[Window]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(PATIENCE)
    page.add_init_script(f"({COUNT})()")
    yield Window(page, wide.address)
    page.close()


def test_a_canvas_strokes_no_narrow_rectangle_chosen_or_not(tab: Window):
    page = tab.open("/tree?run=forest&tree=wide0&node=9")
    page.wait_for_selector(f".icicle[data-drawn='{LEAVES + 2}'][data-selected=n9]")
    boxes = page.evaluate(
        f"() => [...Array({LEAVES + 2}).keys()].map((i) => document.querySelector('.icicle').boxOf(`n${{i}}`).w)"
    )
    assert sum(w < 6 for w in boxes) == LEAVES
    assert int(page.get_attribute(".icicle", "data-borders")) == 2
    strokes = page.evaluate("window.strokes")
    assert len(strokes) >= 2
    assert min(strokes) > 6  # node 9, the chosen one, is 2 pixels wide
    page.evaluate("window.strokes = []; document.querySelector('.icicle').mark(['n5', 'n1'])")
    assert min(page.evaluate("window.strokes")) > 6
    chosen = page.evaluate(
        """() => {
            const all = document.querySelector('.icicle'), { x, y, w, h } = all.boxOf('n9'), ratio = devicePixelRatio;
            const pen = all.querySelector('canvas').getContext('2d');
            return [...pen.getImageData((x + w / 2) * ratio, (y + h / 2) * ratio, 1, 1).data].slice(0, 3);
        }"""
    )
    assert max(chosen) < 60  # it is seen all the same: a bar of ink


def test_branches_over_time_and_rectangles_of_a_file_have_no_narrow_border(tab: Window, wide: Viewer, tmp_path: Path):
    page = tab.open("/modes?run=over")
    page.wait_for_selector(".modes[data-at='2']")
    assert main(["view", str(wide.folder / "forest"), "--html", str(tmp_path / "tree.html")]) == 0
    for place, name in (("", ".mode"), ((tmp_path / "tree.html").as_uri(), ".rect")):
        if place:
            page.goto(place)
        found = page.locator(name).evaluate_all(BORDERED)
        assert sum(w < 6 for w, _ in found) > 100
        assert {border for w, border in found if w < 6} == {0}, name
        assert {border for w, border in found if w > 7} == {1}, name
