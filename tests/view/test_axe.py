"""Every page of the viewer and every kind of report under axe-core, in light and dark: nothing serious is found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rolltree.analysis.source import open_source
from rolltree.analysis.whatif_saved import SavedQuestion, start_saving
from rolltree.compare.report import Chart, Page, PlotSeries, ReportFinding, ReportTable, chosen_tree, write_html
from rolltree.tree.store.parquet import load
from rolltree.view import onefile
from tests.view.conftest import PATIENCE, Viewer, Window
from tests.view.forests import a_run

GRAVE = ("serious", "critical")
ALSO = ("page-has-heading-one", "heading-order", "landmark-one-main", "region")
"""Rules that axe calls moderate and that are held to all the same."""
PLACES = (
    "/", "/run?run={run}", "/step?run={run}&step=2", "/tree?run={run}&step=2&tree={tree}&node={leaf}",
    "/tree?run=planted&step=1&tree=t0&node=6&colour=entropy", "/tree?run={run}/whatif/001&tree={tree}",
    "/pair?run=planted&step=1&tree=t0&a=3&b=6", "/search?run={run}&step=2&q=role:policy", "/findings?run={run}",
    "/decisive?run={run}&step=2", "/modes?run={run}", "/lens?run={run}&step=2&tree={tree}&node={leaf}",
    "/calls?run={run}&step=2&tree={tree}",
    "/whatif?run={run}", "/whatif?run={run}&step=2&tree={tree}&node={leaf}&token=1", "/whatif?run={run}&saved=001",
    "/tree?run={run}&step=2&tree=nothing", "/nowhere?run=x", "/run?run=nothing",
)  # fmt: skip


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, real_run: Path) -> tuple[Path, str, int]:
    """A folder with a real run (findings, a what-if) and a planted one; a tree and a leaf of the real one."""
    home = tmp_path_factory.mktemp("axe") / "seen"
    run = Path(shutil.copytree(real_run, home / "real"))
    a_run(home / "planted")
    finding = {"step": 2, "name": "collapse", "severity": "critical", "message": "m", "nodes": [], "fix": "f"}
    (run / "findings.jsonl").write_text(json.dumps(finding) + "\n")
    tree = next(iter(load(run / "forests" / "step=2")))
    leaf = next(leaf for leaf in tree.leaves() if len(leaf) > 2)
    source, known = open_source(run), max(tree.nodes)
    start = tree.cut(leaf, 1)
    tree.extend(start, leaf.actions, status="done", finish="eos", scores={"reward": 1.0})
    about = SavedQuestion(
        2, tree.id, leaf.id, 1, 1, 0, "local", 1.0, "continued by nano", "grpo", "nano", start.id, known, "done"
    )
    start_saving(source, about, tree)
    return home, tree.id, leaf.id


@pytest.fixture(scope="module")
def home(started: Callable[..., Viewer], seen: tuple[Path, str, int]) -> Viewer:
    """A viewer on the folder."""
    return started(seen[0])


@pytest.fixture(params=["light", "dark"])
def tab(browser: Any, home: Viewer, request: pytest.FixtureRequest) -> Iterator[Window]:
    """A tab in the light or in the dark."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=request.param)
    context.set_default_timeout(PATIENCE)
    yield Window(context.new_page(), home.address)
    context.close()


def trouble(page: Any) -> list[str]:
    """What axe finds serious on a page as it stands."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is missing: pip install '.[dev]'"
    ).Axe()
    # Colours are measured where they end, not on their way from light to dark.
    page.add_style_tag(content="*, *::before, *::after { transition: none !important; animation: none !important }")
    found = axe.run(page).response["violations"]
    return [
        f"{v['id']}: {node['html'][:160]} | {node['failureSummary'][:300]}"
        for v in found if v["impact"] in GRAVE or v["id"] in ALSO for node in v["nodes"]
    ]  # fmt: skip


def test_every_page_of_the_viewer(tab: Window, seen: tuple[Path, str, int]):
    wrong: dict[str, list[str]] = {}
    for place in PLACES:
        where = place.format(run="real", tree=seen[1], leaf=seen[2])
        page = tab.page
        page.goto(tab.address + where)
        page.wait_for_selector(".page")
        if "nowhere" not in place:
            page.wait_for_function("window.socket?.connected && !document.querySelector('.waiting')")
        if found := trouble(page):
            wrong[where] = found
    assert not wrong, json.dumps(wrong, indent=1)


def test_reports_and_a_tree_in_one_file(tab: Window, seen: tuple[Path, str, int], tmp_path: Path):
    line = PlotSeries("grpo", [0, 1e5], [0.1, 0.5], [0.05, 0.3], [0.2, 0.7], [([0, 1], [0.1, 0.4])])
    tree = chosen_tree([str(seen[0] / "real")], lambda ids: " ".join(map(str, ids)), "treepo")
    assert tree is not None
    shown = Page(
        title="grpo and treepo", lead="which is better", facts=[("task", "countdown")],
        findings=[ReportFinding(v, f"{v}: a sentence") for v in ("holds", "worse", "no difference found", "void")],
        charts=[Chart("pass@1", "tokens", "pass@1", [line], percent=True, target=0.4, note="a note")],
        grids=[ReportTable("table", ["arm", "pass@1"], [["grpo", "0.5"]], "a note")], commands=[("repeat", "rolltree")],
        trees=[tree], notes=["a note"], versions=[("rolltree", "0")],
    )  # fmt: skip
    report = write_html(shown, tmp_path / "report.html")
    single = onefile.write_html(open_source(seen[0] / "real"), 2, seen[1], tmp_path / "tree.html", overwrite=False)
    for file in (report, single):
        tab.page.goto(file.as_uri())
        assert trouble(tab.page) == [], file.name


MARK = """() => {
  const all = [...document.querySelectorAll('a[href], button:not([disabled]), input, select, summary')]
    .filter((e) => e.offsetParent && e.tabIndex >= 0);
  for (const e of all) e.dataset.reached = 'no';
  document.addEventListener('focusin', (event) => { event.target.dataset.reached = 'yes'; });
  document.activeElement?.blur();
  return all.length + document.querySelectorAll('[tabindex]').length;
}"""


@pytest.mark.parametrize("tab", ["light"], indirect=True)
def test_everything_that_can_be_pressed_is_reached_by_the_tab_key(tab: Window, seen: tuple[Path, str, int]):
    for place in (PLACES[3], PLACES[6], PLACES[8], *PLACES[9:16]):
        page = tab.open(place.format(run="real", tree=seen[1], leaf=seen[2]))
        count = page.evaluate(MARK)
        for _ in range(count + 10):
            page.keyboard.press("Tab")
        left = "[...document.querySelectorAll('[data-reached=no]')].map((e) => e.outerHTML.slice(0, 120))"
        assert page.evaluate(left) == [], place
