"""Trees of latents as pictures, in a real browser."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rolltree.generate.branches import Branches
from rolltree.tree.store.parquet import save
from tests.latents.tiny import grown
from tests.view.conftest import Viewer


def test_a_tree_of_latents_leads_to_its_pictures(started, browser, tmp_path: Path):
    with ThreadPoolExecutor(1) as pool:  # the browser's own event loop runs in this one
        forest = pool.submit(grown, Branches((1, 3), first=2)).result()
    tree = next(iter(forest))
    viewer: Viewer = started(save(forest, tmp_path / "images", states="drop"))
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(viewer.address + "/tree?run=images")
    page.click("a.as-pictures")
    page.wait_for_selector("svg.image-tree")
    assert page.locator("svg.image-tree image").count() == len(tree) - 1
    assert page.locator("svg.denoising image").count() == 7
    page.click(f"text=leaf {tree.leaves()[-1].id}")
    page.wait_for_selector("svg.denoising")
    assert wrong == []
    page.close()
