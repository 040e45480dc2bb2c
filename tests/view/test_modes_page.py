"""The slider over training steps in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

from rolltree.view import onefile
from rolltree.view.colours import contrast
from tests.analysis.test_modes import a_run_over_time
from tests.view.conftest import Viewer

ASSETS = Path(onefile.__file__).parent / "assets"


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


def test_words_on_a_branch_read_at_any_rate_of_success(browser):
    script = (ASSETS / "scrubber.js").read_text().replace("export default", "window.scrubber =")
    page = browser.new_page()
    page.add_script_tag(content=f"(() => {{ {script} }})()")
    drawn = page.evaluate(
        """() => [...Array(101).keys()].map((i) => {
            const data = { modes: [{ parent: -1, depth: 0, share: [1], solved: [i / 100] }] };
            const [place] = window.scrubber.computed.places.call({ data, at: 0 });
            return [place.background, place.color];
        })"""
    )
    page.close()
    for ground, ink in drawn:
        colour = "#" + "".join(f"{int(v):02x}" for v in re.findall(r"\d+", ground))
        assert contrast(colour, {"#000": "#000000", "#fff": "#ffffff"}.get(ink, ink)) >= 4.5, (ground, ink)
