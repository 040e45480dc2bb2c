"""The slider over training steps in a real browser."""

from __future__ import annotations

from pathlib import Path

from tests.analysis.test_modes import a_run_over_time
from tests.view.conftest import Viewer


def widths(page) -> dict[str, float]:
    shown = "m => getComputedStyle(m).visibility === 'visible' ? parseFloat(m.style.width) : 0"
    return {m.inner_text().strip(): m.evaluate(shown) for m in page.locator(".mode").all() if m.is_visible()}


def test_modes_grow_and_die_under_the_slider(started, browser, tmp_path: Path):
    viewer: Viewer = started(a_run_over_time(tmp_path / "over"))
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(viewer.address + "/run?run=over")
    page.click("a.modes-link")
    page.wait_for_selector(".modes[data-at='2']")
    assert widths(page) == {"3 7": 100, "0 1": 50, "1 1": 50}
    page.focus(".scrubber input")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector(".modes[data-at='1']")
    assert widths(page) == {"3 7": 100, "0 1": 50, "2 2": 50}
    assert "50 % of step 1 (1 rollouts)" in page.locator(".mode >> nth=1").get_attribute("title")
    rows = page.locator("table.grid tbody tr").all_inner_texts()
    assert "2 2\tgone after 1\t50 %\t–" in rows
    assert "0 1\tall along\t50 %\t50 %" in rows
    assert wrong == []
    page.close()
