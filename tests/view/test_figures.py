"""The figures of the documentation: in the light and in the dark, and with one colour for a task."""

from __future__ import annotations

import functools
import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rolltree.analysis.line_colours import LINES, TASKS, task_colour
from rolltree.compare.report.html import html
from rolltree.compare.report.page import Page
from studies.exact.chart import DARK
from tests.view.conftest import PATIENCE, Viewer
from tests.view.forests import a_run

ROOT = Path(__file__).parents[2]
FIGURES = sorted((ROOT / "docs").rglob("*.svg"))


def test_every_figure_knows_the_dark():
    assert len(FIGURES) >= 8
    assert [f.name for f in FIGURES if DARK not in f.read_text()] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_figure_stands_on_the_ground_of_its_page_and_is_read_there(browser: Any, tmp_path: Path, scheme: str):
    image = pytest.importorskip("PIL.Image", reason="Pillow is missing: pip install pillow")
    page = browser.new_page(color_scheme=scheme, viewport={"width": 700, "height": 400})
    (tmp_path / "figure.html").write_text(f'<body style="margin:0"><img src="{FIGURES[0].as_uri()}" width="640">')
    page.goto((tmp_path / "figure.html").as_uri())
    shot = np.asarray(image.open(BytesIO(page.locator("img").screenshot())).convert("L"), np.float64)
    page.close()
    ground, ink = (shot[2, 2], shot.min()) if scheme == "light" else (shot[2, 2], shot.max())
    assert (ground > 240) if scheme == "light" else (ground < 40)
    assert abs(ground - ink) > 150


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, without a log."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_figures_follow_the_toggle_of_the_site_and_the_system_before_it(browser: Any, tmp_path: Path):
    pytest.importorskip("mkdocs", reason="mkdocs is missing: pip install '.[dev]'")
    image = pytest.importorskip("PIL.Image", reason="Pillow is missing: pip install pillow")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", str(ROOT / "mkdocs.yml")]
    built = subprocess.run([*command, "-d", str(tmp_path / "site")], text=True, capture_output=True, check=False)
    assert built.returncode == 0, built.stderr
    folder = functools.partial(Quiet, directory=str(tmp_path / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), folder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for system in ("light", "dark"):
            page = browser.new_page(color_scheme=system, viewport={"width": 1200, "height": 900})
            page.set_default_timeout(PATIENCE)
            page.goto(f"http://127.0.0.1:{server.server_port}/measured/learning/")
            found: list[bool] = []
            for _ in range(2):
                shot = page.locator('article img[src$=".svg"]').screenshot()
                found.append(int(np.asarray(image.open(BytesIO(shot)).convert("L"))[5, 5]) > 128)
                before = page.evaluate("document.body.dataset.mdColorScheme")
                page.click('header label[for^="__palette"]:visible')
                page.wait_for_function("was => document.body.dataset.mdColorScheme !== was", arg=before)
            assert found == ([True, False] if system == "light" else [False, True])
            page.close()
        server.shutdown()


def test_a_task_has_the_viewers_colour_in_the_figure_of_learning():
    learning = (ROOT / "docs/measured/learning.svg").read_text()
    lines = re.findall(r'<text x="465" y="\d+" fill="(#\w+)">(\w+), seed', learning)
    assert {task for _, task in lines} == {"arithmetic", "countdown", "grid"}
    assert {(colour, task) for colour, task in lines} == {(TASKS[task], task) for _, task in lines}


def test_a_task_is_known_whatever_stands_around_its_name():
    for name in ("grid", "grid 2", "grid, level 2", "mixed:grid", "spoken:grid", "grid?size=5"):
        assert task_colour(name) == TASKS["grid"]
    assert len(set(TASKS.values())) == len(TASKS)
    assert task_colour("mine.jsonl") == task_colour("mine.jsonl")
    assert task_colour("mine.jsonl") in LINES


def test_curves_of_several_tasks_have_the_colours_of_their_tasks():
    parts = pytest.importorskip("rolltree.view.pages.parts", reason="the viewer is not installed")
    one = parts.line_styles({"a": "grid", "b": "grid"})
    assert one["a"]["color"] != one["b"]["color"]
    several = parts.line_styles({"a": "grid", "b": "countdown", "c": "grid"})
    assert {run: style["color"] for run, style in several.items()} == {
        "a": TASKS["grid"], "b": TASKS["countdown"], "c": TASKS["grid"]
    }  # fmt: skip
    assert several["a"]["dash"] != several["c"]["dash"]


def test_reports_and_the_viewer_mark_a_task_with_its_colour(
    browser: Any, started: Callable[..., Viewer], tmp_path: Path
):
    for name, task in (("one", "grid"), ("two", "countdown")):
        config = a_run(tmp_path / name) / "config.json"
        config.write_text(config.read_text().replace("words", task))
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(started(tmp_path).address)
    page.wait_for_selector(".curve .main-svg")
    marks = page.locator(".grid .box").evaluate_all("all => all.map(e => e.style.background)")
    drawn = set(page.locator(".curve >> nth=0 >> .js-line").evaluate_all("all => all.map(e => e.style.stroke)"))
    report = html(Page(title="t", lead="l", facts=[("task", "grid, level 2")]))
    (tmp_path / "report.html").write_text(report)
    page.goto((tmp_path / "report.html").as_uri())
    dot = page.locator(".facts .dot").evaluate("e => getComputedStyle(e).backgroundColor")
    page.close()
    grid, countdown = (f"rgb{tuple(int(TASKS[t][i : i + 2], 16) for i in (1, 3, 5))}" for t in ("grid", "countdown"))
    assert marks == [grid, countdown]
    assert drawn == {grid, countdown}
    assert dot == grid
