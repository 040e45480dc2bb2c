"""The credit lens in a real browser."""

from __future__ import annotations

from pathlib import Path

from rolltree.tree import Forest
from rolltree.tree.store.parquet import save
from tests.analysis.test_lens import uneven
from tests.view.conftest import Viewer


def test_two_credits_stand_side_by_side_with_the_flipped_token_marked(started, browser, tmp_path: Path):
    save(Forest([uneven()]), tmp_path / "uneven")
    viewer: Viewer = started(tmp_path / "uneven")
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(viewer.address + "/tree?run=uneven&tree=t")
    page.click(".lens-link")
    page.wait_for_selector(".lens >> nth=1")
    page.goto(viewer.address + "/lens?run=uneven&tree=t&node=5&credits=dr_grpo,sibling")
    page.wait_for_selector(".lens .token")
    assert page.locator(".lens h2").all_inner_texts() == ["dr_grpo", "sibling"]
    assert "1 of 9 taught tokens change sign" in page.locator(".says").first.inner_text()
    assert page.locator(".token.marked").all_inner_texts() == ["12 ", "12 "]
    page.hover(".token.marked >> nth=0")
    assert page.locator(".tip dd").first.inner_text() == "0.25"
    assert page.locator("table.grid tbody tr").all_inner_texts() == ["node 5\t12\t1\t+0.250\t-0.200"]
    page.click(".lens >> nth=1 >> .run-head >> nth=1")
    page.wait_for_function("location.search.includes('node=1')")
    page.goto(viewer.address + "/lens?run=uneven&tree=t&credits=grpo")
    page.wait_for_selector(".trouble:has-text('at least two')")
    assert wrong == []
    page.close()
